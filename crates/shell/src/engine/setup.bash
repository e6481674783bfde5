# What the front end defines in the engine. Every name starts with __substrate_. The engine reads
# commands from descriptor 0, the control socket. Whatever may run code of the user's runs where
# descriptor 0 is something else for as long as that takes, and the socket is @CONTROL@, a number
# filled in before use: code that replaces its standard input has replaced nothing afterwards.

__substrate_t() {
  \builtin return "$__substrate_n"
}

# Settings that would act on the front end's own commands are put aside while no line runs.
__substrate_put_aside() {
  if [[ $__substrate_aside != 1 ]]; then
    __substrate_k=0
    if [[ -n ${PROMPT_COMMAND[*]+x} && ${PROMPT_COMMAND@a} != *r* ]]; then
      case ${PROMPT_COMMAND@a} in
      *a*) __substrate_k=1 __substrate_c=("${PROMPT_COMMAND[@]}") PROMPT_COMMAND=() ;;
      *) __substrate_k=2 __substrate_c=("$PROMPT_COMMAND") PROMPT_COMMAND= ;;
      esac
    fi
    __substrate_i=2
    if [[ -n ${PS1+x} ]]; then
      __substrate_i=0
      if [[ ${PS1@a} != *r* ]]; then
        __substrate_i=1 __substrate_p=$PS1
      fi
    fi
    if [[ $__substrate_i != 0 ]]; then
      PS1=
    fi
    __substrate_z=0
    if [[ -n ${PS0-} && ${PS0@a} != *r* ]]; then
      __substrate_z=1 __substrate_y=$PS0 PS0=
    fi
    if [[ -o history || $__substrate_g == 2 ]]; then
      __substrate_g=1
    else
      __substrate_g=0
    fi
    \builtin set +o history
    __substrate_aside=1
  fi
}

# Aliases are for the user's code: the shell's own words mean what they mean.
__substrate_plain() {
  if \builtin shopt -q expand_aliases; then
    __substrate_al=1
    \builtin shopt -u expand_aliases
  fi
}

__substrate_aliases() {
  if [[ ${__substrate_al-} == 1 ]]; then
    \builtin shopt -s expand_aliases
  fi
  __substrate_al=0
}

__substrate_give_back() {
  if [[ $__substrate_aside != 0 ]]; then
    case $__substrate_k in
    1) PROMPT_COMMAND=("${__substrate_c[@]}") ;;
    2) PROMPT_COMMAND=${__substrate_c[0]} ;;
    esac
    case $__substrate_i in
    1) PS1=$__substrate_p ;;
    2) \builtin unset -v PS1 ;;
    esac
    if [[ $__substrate_z == 1 ]]; then
      PS0=$__substrate_y
    fi
    if [[ $__substrate_g == 1 ]]; then
      \builtin set -o history
    fi
    __substrate_aside=0
  fi
}

# A report that got lost is given once more.
__substrate_again() {
  if [[ $__substrate_f == 0 ]]; then
    __substrate_f=4
  fi
}

# A line for the history, as it stands.
__substrate_remember() {
  if [[ $__substrate_g == 1 ]]; then
    \builtin history -s -- "$1"
  fi
}

# Before a line: the user's own settings come back, then the engine waits for the terminal.
__substrate_b() {
  if [[ $1 == 1 ]]; then
    __substrate_remember "$__substrate_w"
  fi
  __substrate_give_back
  __substrate_f=1 __substrate_n=$__substrate_s
  \builtin unset -v __substrate_s __substrate_o
  \builtin printf 'B\0' >&@CONTROL@
  \builtin read -r __substrate_x <&@CONTROL@
  if [[ -n ${PS0-} ]]; then
    \builtin printf '%s' "${PS0@P}" >&2
  fi
  \builtin return 0
}

# bash takes back the last line of the history for `history -p` if it believes to have read it
# itself; a line added by hand stays.
__substrate_settle_history() {
  \builtin history -s -- __substrate_
  \builtin history -d -1
}

# The end of a line: called with `whole` after one that came to its end; without it if the line was cut short,
# when bash may have put our own command into the history.
__substrate_e() {
  __substrate_s=${__substrate_s-$?}
  if [[ $__substrate_f == 1 ]]; then
    __substrate_o=${__substrate_o-$-}
    \builtin set +aeuxv
    __substrate_plain
    __substrate_f=2
    if [[ ${1-} != whole ]]; then
      if [[ -o history && $(\builtin history 1) == *__substrate_* ]]; then
        \builtin history -d -1
      fi
      __substrate_settle_history
    fi
    __substrate_put_aside
  fi
}

# After a line: the hooks run, then the front end is told what it must know.
__substrate_r() {
  # Traps that announce commands keep still while a completion is under way.
  local COMP_LINE=__substrate_ COMP_POINT=0
  if [[ $__substrate_f != 0 ]]; then
    if [[ $__substrate_f == 2 && -z ${__substrate_quiet-} ]]; then
      __substrate_n=$__substrate_s
      __substrate_give_back
      # As a file, because `set -o vi` in an interactive `eval` makes bash read the terminal.
      \builtin . /dev/fd/0 <<<'__substrate_hooks <>"$__substrate_tty" @CONTROL@>&-'
    fi
    # After a key that was pressed no hook has to hear of anything.
    __substrate_quiet= __substrate_f=4
    __substrate_plain
    {
      \builtin printf '\0T\0'
      \builtin trap -p
      \builtin trap - DEBUG RETURN ERR
    } >&@CONTROL@ 2>/dev/null
    \builtin export -n __substrate_s __substrate_u __substrate_o
    local __substrate_a=
    if [[ -o vi ]]; then __substrate_a+=v; fi
    if [[ -o histexpand ]]; then __substrate_a+=H; fi
    if \builtin shopt -q login_shell; then __substrate_a+=l; fi
    if \builtin shopt -q autocd; then __substrate_a+=c; fi
    if \builtin shopt -q cmdhist && ! \builtin shopt -q lithist; then __substrate_a+=j; fi
    if [[ $__substrate_al == 1 ]]; then __substrate_a+=a; fi
    __substrate_put_aside
    local __substrate_b=$__substrate_i
    # One that cannot be put aside is shown as well.
    if [[ $__substrate_b == 0 ]]; then __substrate_b=1; fi
    # The prompt that bash starts with is nobody's choice.
    if [[ $__substrate_b == 1 && $__substrate_p == '\s-\v\$ ' ]]; then __substrate_b=3; fi
    __substrate_f=0
    \builtin printf '\0R\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0' "$__substrate_s" "$__substrate_b" \
      "$__substrate_v" "$__substrate_a" "${__substrate_o//[!aeuxv]/}" "${HISTCONTROL-}" "${IGNOREEOF-}" \
      "${FCEDIT:-${VISUAL:-${EDITOR-}}}" "${histchars-!^#}" "${PATH-}" "${HOME+=}${HOME-}" \
      "$__substrate_tty" "$__substrate_q2" "${SUBSTRATE_PROMPT_SIGN-}" >&@CONTROL@ 2>/dev/null
  fi
  \builtin return 0
}

# With line editing on, bash leaves prompting to a line editor, which never runs. Where bash is interactive, that
# is at the top, this would run it.
__substrate_edits() {
  if [[ ! -o vi && ! -o emacs ]]; then
    \builtin set -o emacs
  fi
}

# What the user wants done before a prompt.
__substrate_hooks() {
  __substrate_edits
  __substrate_announce
  __substrate_h
  __substrate_d
}

# The user's PROMPT_COMMAND, in order, each with the line's status.
__substrate_h() {
  local __substrate_a
  __substrate_aliases
  for __substrate_a in "${PROMPT_COMMAND[@]}"; do
    if __substrate_t "$__substrate_u"; then
      \builtin eval "$__substrate_a"
    else
      \builtin eval "$__substrate_a"
    fi
  done
  \builtin return 0
}

# The numbers of jobs that the line started, which bash says only where it reads commands itself.
__substrate_announce() {
  if [[ ${!-} != "$__substrate_j" ]]; then
    __substrate_j=${!-}
    # Not by `read`, whose input a trap may replace.
    local __substrate_a __substrate_b=$(\builtin jobs -l)
    while [[ -n $__substrate_b ]]; do
      __substrate_a=${__substrate_b%%$'\n'*}
      __substrate_b=${__substrate_b#"$__substrate_a"}
      __substrate_b=${__substrate_b#$'\n'}
      if [[ $__substrate_a =~ ^(\[[0-9]+\]).\ *([0-9]+)\  && " $__substrate_jobs " != *" ${BASH_REMATCH[2]} "* ]]; then
        \builtin printf '%s %s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" >&2
        __substrate_jobs+=" ${BASH_REMATCH[2]}"
      fi
    done
  fi
  \builtin return 0
}

__substrate_d() {
  __substrate_v=
  if [[ -n ${PS1-} ]]; then
    if __substrate_t; then __substrate_v=${PS1@P}; else __substrate_v=${PS1@P}; fi
  fi
  __substrate_q2=
  if [[ -n ${PS2-} ]]; then
    __substrate_q2=${PS2@P}
  fi
  \builtin return 0
}

# The user's DEBUG trap where a `return` in it must not leave what is ours.
__substrate_debug() {
  \builtin eval "$1"
}
