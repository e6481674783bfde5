case $__substrate_m in
l)
  \builtin eval "$__substrate_pre"
  if __substrate_t "$__substrate_u"; then
    \builtin eval "$__substrate_l" <&@TERMINAL@ @TERMINAL@>&- @WRAPPER@>&- @QUESTIONS@>&-
  else
    \builtin eval "$__substrate_l" <&@TERMINAL@ @TERMINAL@>&- @WRAPPER@>&- @QUESTIONS@>&-
  fi
  {
    __substrate_e whole
    if [[ ! -o vi && ! -o emacs && $__substrate_ == '' ]]; then \builtin set -o emacs; fi
    # It would run when this file ends; the front end sets it again for the next line.
    \builtin trap -p RETURN $__substrate_ >&0
    \builtin trap - RETURN $__substrate_
  } >/dev/null 2>&1
  ;;
h)
  __substrate_announce
  __substrate_h <&@TERMINAL@ @TERMINAL@>&- @WRAPPER@>&- @QUESTIONS@>&-
  __substrate_d <&@TERMINAL@ @TERMINAL@>&- @WRAPPER@>&- @QUESTIONS@>&-
  ;;
s)
  # With line editing on, bash leaves prompting to a line editor, which never runs.
  \builtin set -o emacs
  \builtin eval "$__substrate_l" <&@TERMINAL@ @TERMINAL@>&- @WRAPPER@>&- @QUESTIONS@>&-
  __substrate_e whole
  ;;
q)
  if [[ -z ${__substrate_asked-} ]]; then
    \builtin . /dev/fd/@QUESTIONS@
    __substrate_asked=1
  fi
  __substrate_q "${__substrate_a[@]}" @WRAPPER@>&- @QUESTIONS@>&-
  ;;
esac
