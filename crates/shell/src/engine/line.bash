{
\builtin eval "$__substrate_pre"
if __substrate_t "$__substrate_u"; then
  \builtin eval "$__substrate_l" <>"$__substrate_tty"@CLOSED@
else
  \builtin eval "$__substrate_l" <>"$__substrate_tty"@CLOSED@
fi
{
  __substrate_s=${__substrate_s-$?}
  __substrate_edits
  @RETURN@
  # A shell that may not keep a descriptor would not get its own input back.
  { \builtin : "$__substrate_"; } 9>&0
} >/dev/null 2>&1 || \builtin kill -KILL $$
}
