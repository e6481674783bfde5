//! What somebody probably meant by a word that nobody knows.

/// The known word that a slip of the pen is closest to.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|other| (distance(word, other), *other));
    let (distance, other) = distances.min()?;
    let begins_alike = word.len() > 3 && word.get(..3) == other.get(..3);
    let most = match begins_alike {
        true => 3,
        false => 2,
    };
    (distance <= most.max(word.len() / 3)).then_some(other)
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for j in 0..b.len() {
            let change = corner + usize::from(letter != b[j]);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_proposed() {
        let known = ["denied", "ask", "allowed", "default"];
        for (word, near) in [
            ("deny", Some("denied")),
            ("alowed", Some("allowed")),
            ("defualt", Some("default")),
            ("something", None),
        ] {
            assert_eq!(nearest(word, &known), near, "{word}");
        }
        assert_eq!(nearest("x", &[]), None);
    }
}
