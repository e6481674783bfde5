//! The engine's state, for a line that runs somewhere else.

use std::path::PathBuf;

use super::quote;

/// A copy of the engine's state that a fresh bash can start from.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// Commands that set variables, functions, aliases, options and the umask.
    pub script: Vec<u8>,
    /// The working directory.
    pub cwd: PathBuf,
}

impl Carried {
    /// A program for bash that takes up the state, runs the line, and says on standard error what
    /// of the shell's own state the line changed, since none of it comes back.
    pub fn program(&self, line: &[u8]) -> Vec<u8> {
        let mut program = b"shopt -s expand_aliases\n".to_vec();
        // Read-only variables are already there when bash starts, or are set again: not an error
        // of the line's.
        program.extend_from_slice(b"eval ");
        program.extend_from_slice(&quote::single(&self.script));
        program.extend_from_slice(b" 2>/dev/null\n");
        program.extend_from_slice(COMPARE_HEAD.as_bytes());
        program.extend_from_slice(b"eval ");
        program.extend_from_slice(&quote::single(line));
        program.push(b'\n');
        program.extend_from_slice(COMPARE_TAIL.as_bytes());
        program
    }
}

const COMPARE_HEAD: &str = r#"__substrate_take() {
  __substrate_now=("$(declare -p)" "$(declare -f)" "$(alias -p)" "$(shopt -p; set +o)" "$(umask)" "$PWD" "$(trap -p)")
}
__substrate_take 2>/dev/null
__substrate_then=("${__substrate_now[@]}")
"#;

const COMPARE_TAIL: &str = r#"__substrate_status=$?
{
  set +aeuxv
  __substrate_take
  __substrate_differs() {
    local kind=$1 name
    comm -3 <(sort <<<"$2") <(sort <<<"$3") | while read -r _ _ name; do
      name=${name%%=*}
      case $name in
      '' | *[!a-zA-Z0-9_-]* | __substrate_* | _ | BASH* | COMP_* | DIRSTACK | EPOCH* | FUNCNAME | LINENO | OLDPWD | OPTIND | \
        PIPESTATUS | PWD | RANDOM | SECONDS | SRANDOM | COLUMNS | LINES) ;;
      *) echo "$kind $name" ;;
      esac
    done
  }
  __substrate_names() { sed -n 's/^\([^ ]*\) () *$/declare -f \1/p' <<<"$1"; }
  __substrate_changed=$(
    __substrate_differs variable "${__substrate_then[0]}" "${__substrate_now[0]}"
    if [[ ${__substrate_then[1]} != "${__substrate_now[1]}" ]]; then
      __substrate_differs function "$(__substrate_names "${__substrate_then[1]}")" "$(__substrate_names "${__substrate_now[1]}")"
    fi
    __substrate_differs alias "${__substrate_then[2]//alias /alias - }" "${__substrate_now[2]//alias /alias - }"
    __substrate_differs option "${__substrate_then[3]}" "${__substrate_now[3]}"
    if [[ ${__substrate_then[4]} != "${__substrate_now[4]}" ]]; then echo the umask; fi
    if [[ ${__substrate_then[5]} != "${__substrate_now[5]}" ]]; then echo the directory; fi
    if [[ ${__substrate_then[6]} != "${__substrate_now[6]}" ]]; then echo traps; fi
  )
  __substrate_changed=$(sort -u <<<"$__substrate_changed" | head -n 6 | paste -sd , | sed 's/,/, /g')
} 2>/dev/null
if [[ -n $__substrate_changed ]]; then
  printf 'substrate: the line ran in a world and cannot change this shell: %s\n' "$__substrate_changed" >&2
fi
exit "$__substrate_status"
"#;
