# What the front end can ask the engine while no line runs; read when it asks for the first time.

# One question of the front end's; the answer goes to the control socket.
__substrate_q() {
  local COMP_LINE=__substrate_ COMP_POINT=0
  local -
  \builtin set +mxvu
  {
    "$@" </dev/null 2>/dev/null @CONTROL@>&-
  } >&@CONTROL@
  \builtin return 0
}

__substrate_names() {
  \builtin alias -p
  \builtin printf '\0'
  \builtin bind -X
  \builtin printf '\0'
  \builtin bind -s
}

# The line as a command that is bound to a key has left it.
__substrate_key() {
  \builtin printf '%s\0%s' "${__substrate_rp-0}" "${__substrate_rl-}"
}

__substrate_variables() {
  local __substrate_a
  while \builtin read -r __substrate_a; do
    \builtin printf '%s=%s\0' "$__substrate_a" "${!__substrate_a}"
  done < <(\builtin compgen -e)
}

__substrate_functions() {
  \builtin compgen -A function
}

__substrate_expand() {
  # `history -p` speaks of the list as it was before this line.
  \builtin history -p -- "$1" && \builtin printf '\0ok'
}

__substrate_stopped() {
  \builtin jobs -s
}

__substrate_recall() {
  \builtin fc -ln "$@"
}

# What words are broken at for completion.
__substrate_breaks() {
  \builtin printf %s "${COMP_WORDBREAKS-}"
}

# A path with the variables in it replaced, and nothing else done to it.
__substrate_value() {
  local __substrate_a=$1 __substrate_n
  while [[ $__substrate_a =~ ^([^$]*)\$(\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))(.*)$ ]]; do
    __substrate_n=${BASH_REMATCH[3]}${BASH_REMATCH[4]}
    __substrate_a=${BASH_REMATCH[5]}
    \builtin printf %s "${BASH_REMATCH[1]}${!__substrate_n}"
  done
  \builtin printf %s "$__substrate_a"
}

# Whether a word that is typed alone is nothing but the name of a directory.
__substrate_is_directory() {
  local __substrate_a
  \builtin eval "__substrate_a=$1"
  if ! \builtin type -t -- "$__substrate_a" >/dev/null && [[ -d $__substrate_a ]]; then
    \builtin printf yes
  fi
}

__substrate_directory() {
  # Only a tilde prefix is expanded: the front end passes nothing else.
  \builtin eval "\\builtin printf %s $1"
}

# Everything a fresh bash needs to continue as this one would: sourced by lines that run elsewhere.
__substrate_state() {
  local __substrate_a
  \builtin printf 'umask %s\n' "$(\builtin umask)"
  while \builtin read -r __substrate_a; do
    case $__substrate_a in
    __substrate_* | COMP_* | BASH | BASHOPTS | BASHPID | BASH_* | COPROC | DIRSTACK | EPOCH* | EUID | FUNCNAME | GROUPS | \
      HISTCMD | HOSTNAME | HOSTTYPE | LINENO | MACHTYPE | OPTERR | OSTYPE | PIPESTATUS | PPID | RANDOM | SECONDS | \
      SHELLOPTS | SHLVL | SRANDOM | UID | _ | PS1 | PS0 | PROMPT_COMMAND | COLUMNS | LINES | HIST*) ;;
    *) \builtin declare -p -- "$__substrate_a" ;;
    esac
  done < <(\builtin compgen -A variable)
  while \builtin read -r __substrate_a; do
    case $__substrate_a in
    __substrate_*) ;;
    *) \builtin declare -f -- "$__substrate_a" ;;
    esac
  done < <(\builtin compgen -A function)
  \builtin alias -p
  \builtin shopt -p | while \builtin read -r __substrate_a; do
    case $__substrate_a in
    *login_shell | *restricted_shell | *expand_aliases) ;;
    *) \builtin printf '%s\n' "$__substrate_a" ;;
    esac
  done
  \builtin printf 'set -%s\n' "${__substrate_o//[!abefhkpuvxBCEPT]/}"
}

# What a bash that takes the place of this one needs besides: what belongs to the prompt, completions, bound keys,
# traps, and the names of what is exported, as there may be more at first.
__substrate_rest() {
  local __substrate_a IFS=' '
  local -a __substrate_b
  \builtin mapfile -t __substrate_b < <(\builtin compgen -e)
  \builtin printf 'for __substrate_a in $(\\builtin compgen -e); do case " %s " in *" $__substrate_a "*) ;; ' "${__substrate_b[*]}"
  \builtin printf '*) \\builtin unset -v -- "$__substrate_a" ;; esac; done; \\builtin unset -v __substrate_a\n'
  for __substrate_a in BASH_ENV COMP_WORDBREAKS HISTCONTROL HISTIGNORE HISTTIMEFORMAT HISTSIZE HISTFILESIZE \
    ${!BASH_COMPLETION*}; do
    \builtin declare -p -- "$__substrate_a"
  done
  case $__substrate_i in
  1) \builtin printf 'PS1=%q\n' "$__substrate_p" ;;
  2) \builtin printf '%s\n' '\builtin unset -v PS1' ;;
  esac
  if [[ $__substrate_z == 1 ]]; then \builtin printf 'PS0=%q\n' "$__substrate_y"; fi
  case $__substrate_k in
  1) \builtin printf 'PROMPT_COMMAND=(%s)\n' "$(\builtin printf '%q ' "${__substrate_c[@]}")" ;;
  2) \builtin printf 'PROMPT_COMMAND=%q\n' "${__substrate_c[0]}" ;;
  esac
  if [[ -o pipefail ]]; then \builtin printf '%s\n' 'set -o pipefail'; fi
  if [[ -o vi ]]; then \builtin printf '%s\n' 'set -o vi'; fi
  if \builtin shopt -q expand_aliases || [[ ${__substrate_al-} == 1 ]]; then
    \builtin printf '%s\n' 'shopt -s expand_aliases'
  fi
  \builtin complete -p
  \builtin bind -X | while \builtin read -r __substrate_a; do \builtin printf 'bind -x %q\n' "$__substrate_a"; done
  \builtin trap -p
}

# The same for a completion that has the terminal; the end of a name is a byte that a variable can hold.
__substrate_complete_here() {
  local __substrate_screen=$__substrate_tty __substrate_end='\001'
  __substrate_complete "$@"
}

# Programmable completion as readline would run it: word number, cursor, line, then the words.
__substrate_complete() {
  local __substrate_i=$1 __substrate_spec __substrate_cmd __substrate_opts= __substrate_tries=0
  local COMP_POINT=$2 COMP_LINE=$3 COMP_TYPE=9 COMP_KEY=9 __substrate_word=$4
  \builtin shift 4
  local __substrate_out=${__substrate_screen:-/dev/null}
  local -a COMP_WORDS=("$@") __substrate_words __substrate_gen __substrate_more COMPREPLY=()
  local COMP_CWORD=$__substrate_i
  __substrate_cmd=${COMP_WORDS[0]}
  # Until readline has begun, names that are looked up keep their quotes.
  \builtin bind -v >/dev/null 2>&1
  compopt() {
    while (($#)); do
      case $1 in
      -o) __substrate_opts+=" $2"; \builtin shift ;;
      +o) __substrate_opts=${__substrate_opts//" $2"/}; \builtin shift ;;
      esac
      \builtin shift
    done
    \builtin return 0
  }
  while ((__substrate_tries++ < 3)); do
    __substrate_spec=$(\builtin complete -p -- "$__substrate_cmd" || \builtin complete -p -- "${__substrate_cmd##*/}" ||
      \builtin complete -p -D)
    if [[ -z $__substrate_spec ]]; then
      \builtin unset -f compopt
      \builtin return 0
    fi
    \builtin eval "__substrate_words=($__substrate_spec)"
    __substrate_gen=()
    __substrate_opts=
    local __substrate_function= __substrate_command= __substrate_n=1
    while ((__substrate_n < ${#__substrate_words[@]})); do
      case ${__substrate_words[__substrate_n]} in
      -F) __substrate_function=${__substrate_words[++__substrate_n]} ;;
      -C) __substrate_command=${__substrate_words[++__substrate_n]} ;;
      -o) __substrate_opts+=" ${__substrate_words[++__substrate_n]}" ;;
      -f | -d)
        __substrate_gen+=("${__substrate_words[__substrate_n]}")
        __substrate_opts+=" filenames"
        ;;
      -A | -G | -W | -P | -S | -X)
        case ${__substrate_words[__substrate_n]}${__substrate_words[__substrate_n + 1]} in
        -Afile | -Adirectory) __substrate_opts+=" filenames" ;;
        esac
        __substrate_gen+=("${__substrate_words[__substrate_n]}" "${__substrate_words[__substrate_n + 1]}")
        __substrate_n=$((__substrate_n + 1))
        ;;
      -D | -E | -I) ;;
      -?) __substrate_gen+=("${__substrate_words[__substrate_n]}") ;;
      esac
      __substrate_n=$((__substrate_n + 1))
    done
    if [[ -n $__substrate_function ]]; then
      COMPREPLY=()
      "$__substrate_function" "$__substrate_cmd" "$__substrate_word" "${COMP_WORDS[COMP_CWORD - 1]}" >"$__substrate_out"
      if (($? == 124)); then
        \builtin continue
      fi
    elif [[ -n $__substrate_command ]]; then
      \builtin mapfile -t COMPREPLY < <(
        \builtin export COMP_LINE COMP_POINT COMP_TYPE COMP_KEY
        \builtin eval "$__substrate_command \"\$__substrate_cmd\" \"\$__substrate_word\" \"\${COMP_WORDS[COMP_CWORD - 1]}\""
      )
    fi
    if ((${#__substrate_gen[@]})); then
      \builtin mapfile -t __substrate_more < <(\builtin compgen "${__substrate_gen[@]}" -- "$__substrate_word")
      COMPREPLY+=("${__substrate_more[@]}")
    fi
    \builtin break
  done
  \builtin unset -f compopt
  \builtin printf "%s${__substrate_end:-\\0}" "spec$__substrate_opts" "${COMPREPLY[@]}"
}
