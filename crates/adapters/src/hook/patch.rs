//! The files that a patch of Codex's `apply_patch` changes.

use substrate_command::{Action, Effect, Word};

/// Every file of a patch, and what is done to it. What does not look like a patch changes nobody knows what.
pub fn effects(patch: &str) -> Result<Vec<Effect>, String> {
    const HEADS: [(&str, Action); 4] = [
        ("*** Add File:", Action::Write),
        ("*** Update File:", Action::Write),
        ("*** Delete File:", Action::Delete),
        ("*** Move to:", Action::Write),
    ];
    let mut effects: Vec<Effect> = Vec::new();
    let mut updated: Option<&str> = None;
    for line in patch.lines() {
        // The client forgives blanks around its markers, so they may not hide one from us.
        let line = line.trim();
        let head = HEADS.iter().find(|(head, _)| line.starts_with(head));
        let Some((head, action)) = head else { continue };
        let path = line[head.len()..].trim();
        if path.is_empty() || path.contains('\0') {
            return Err(format!("the patch has a `{head}` without a path"));
        }
        effects.push(Effect::path(*action, Word::literal(path)));
        if let ("*** Move to:", Some(from)) = (*head, updated) {
            effects.push(Effect::path(Action::Delete, Word::literal(from)));
        }
        updated = (*head == "*** Update File:").then_some(path);
    }
    match effects.is_empty() {
        true => Err("the patch names no file".to_owned()),
        false => Ok(effects),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(patch: &str) -> Result<Vec<String>, String> {
        Ok(effects(patch)?.iter().map(Effect::text).collect())
    }

    #[test]
    fn every_file_counts() {
        let patch = "*** Begin Patch\n*** Add File: a.txt\n+x\n*** Update File: b c.txt\n*** Move to: d.txt\n@@\n-x\n+y\n  *** Delete File: /etc/e\n*** End Patch\n";
        let wanted = [
            "write:a.txt",
            "write:b c.txt",
            "write:d.txt",
            "delete:b c.txt",
            "delete:/etc/e",
        ];
        assert_eq!(texts(patch).unwrap(), wanted);
        // A heredoc of the shell around it changes nothing.
        let wrapped =
            "apply_patch <<'EOF'\r\n*** Begin Patch\r\n*** Delete File: x\r\n*** End Patch\r\nEOF";
        assert_eq!(texts(wrapped).unwrap(), ["delete:x"]);
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for text in ["", "*** Begin Patch\n*** End Patch", "*** Add File:\n+x"] {
            assert!(texts(text).is_err(), "{text:?}");
        }
    }
}
