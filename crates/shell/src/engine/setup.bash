# What the front end defines in the engine. Every name starts with __substrate_. Descriptor 0 is
# the control socket whenever the engine reads a command of the front end's; the user's code
# never sees it. @TERMINAL@ and @WRAPPER@ are descriptor numbers filled in before use.

__substrate_= __substrate_f=1 __substrate_s=0 __substrate_u= __substrate_o=$- __substrate_l= __substrate_m= __substrate_pre=
__substrate_c=() __substrate_k=0 __substrate_i=0 __substrate_p= __substrate_z=0 __substrate_y= __substrate_g=2
__substrate_v= __substrate_j= __substrate_w= __substrate_x= __substrate_n=0 __substrate_aside=0 __substrate_jobs=

__substrate_t() {
  \builtin return "$__substrate_n"
}

# Settings that would act on the front end's own commands are put aside while no line runs.
__substrate_put_aside() {
  if [[ $__substrate_aside == 1 ]]; then
    \builtin return 0
  fi
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
}

__substrate_give_back() {
  if [[ $__substrate_aside == 0 ]]; then
    \builtin return 0
  fi
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
  \builtin printf 'B\0' >&0
  \builtin read -r __substrate_x
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

# The end of a line: called by the wrapper with `whole`; without it if the line was cut short,
# when bash may have put our own command into the history.
__substrate_e() {
  __substrate_s=${__substrate_s-$?}
  if [[ $__substrate_f != 1 ]]; then
    \builtin return 0
  fi
  __substrate_o=${__substrate_o-$-}
  \builtin set +aeuxv
  __substrate_f=2
  if [[ ${1-} != whole ]]; then
    if [[ -o history && $(\builtin history 1) == *__substrate_* ]]; then
      \builtin history -d -1
    fi
    __substrate_settle_history
  fi
  __substrate_put_aside
  \builtin return 0
}

# After a line: the hooks run, then the front end is told what it must know.
__substrate_r() {
  # Traps that announce commands keep still while a completion is under way.
  local COMP_LINE=__substrate_ COMP_POINT=0
  case $__substrate_f in
  0) \builtin return 0 ;;
  2)
    if [[ -n ${__substrate_quiet-} ]]; then
      # A key was pressed; no line was run that hooks would have to hear of.
      __substrate_quiet= __substrate_f=4
    else
      __substrate_f=4 __substrate_m=h __substrate_n=$__substrate_s
      __substrate_give_back
      \builtin . /dev/fd/@WRAPPER@
    fi
    ;;
  esac
  \builtin trap -p DEBUG >&0
  \builtin trap - DEBUG
  \builtin export -n __substrate_s __substrate_u __substrate_o
  local __substrate_a=
  if [[ -o vi ]]; then __substrate_a+=v; fi
  if [[ -o histexpand ]]; then __substrate_a+=H; fi
  if \builtin shopt -q login_shell; then __substrate_a+=l; fi
  __substrate_put_aside
  local __substrate_b=$__substrate_i
  # The prompt that bash starts with is nobody's choice.
  if [[ $__substrate_b == 1 && $__substrate_p == '\s-\v\$ ' ]]; then __substrate_b=3; fi
  __substrate_f=0
  \builtin printf '\0R\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0%s\0' "$__substrate_s" "$__substrate_b" \
    "$__substrate_v" "$__substrate_a" "${__substrate_o//[!aeuxv]/}" "${HISTCONTROL-}" "${IGNOREEOF-}" \
    "${FCEDIT:-${VISUAL:-${EDITOR-}}}" "${histchars-!^#}" "${PATH-}" "${HOME+=}${HOME-}" >&0
  \builtin return 0
}

# The user's PROMPT_COMMAND, in order, each with the line's status.
__substrate_h() {
  local __substrate_a
  if [[ ${PROMPT_COMMAND@a} != *r* ]]; then
    for __substrate_a in "${PROMPT_COMMAND[@]}"; do
      if __substrate_t "$__substrate_u"; then
        \builtin eval "$__substrate_a"
      else
        \builtin eval "$__substrate_a"
      fi
    done
  fi
  \builtin return 0
}

# The numbers of jobs that the line started, which bash says only where it reads commands itself.
__substrate_announce() {
  if [[ ${!-} != "$__substrate_j" ]]; then
    __substrate_j=${!-}
    local __substrate_a
    while \builtin read -r __substrate_a; do
      if [[ $__substrate_a =~ ^(\[[0-9]+\]).\ *([0-9]+)\  && " $__substrate_jobs " != *" ${BASH_REMATCH[2]} "* ]]; then
        \builtin printf '%s %s\n' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" >&2
        __substrate_jobs+=" ${BASH_REMATCH[2]}"
      fi
    done <<<"$(\builtin jobs -l)"
  fi
  \builtin return 0
}

__substrate_d() {
  __substrate_v=
  if [[ -n ${PS1-} ]]; then
    if __substrate_t; then __substrate_v=${PS1@P}; else __substrate_v=${PS1@P}; fi
  fi
  \builtin return 0
}
