use super::*;
use proptest::prelude::*;

/// Letters and digits that no scanner of repositories takes for a real secret.
fn body(length: usize) -> String {
    "a1B2c3D4e5F6g7H8i9J0kLmN"
        .chars()
        .cycle()
        .take(length)
        .collect()
}

fn upper(length: usize) -> String {
    body(length).to_uppercase()
}

fn line(text: &str) -> String {
    String::from_utf8(Redactor::default().line(text.as_bytes()).into_owned()).unwrap()
}

fn argv(words: &[&str]) -> Vec<String> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let clean = Redactor::default().argv(&words).into_owned();
    clean
        .into_iter()
        .map(|word| word.into_string().unwrap())
        .collect()
}

#[test]
fn tokens_are_known_by_their_form() {
    let tokens = [
        ("ghp_", body(36)),
        ("gho_", body(36)),
        ("ghs_", body(36)),
        ("github_pat_", format!("{}_{}", body(22), body(59))),
        ("glpat-", body(20)),
        ("sk-ant-", format!("api03-{}", body(80))),
        ("sk-proj-", body(48)),
        ("sk-", body(48)),
        ("sk_live_", body(24)),
        ("xoxb-", format!("123456789012-{}", body(24))),
        ("xoxp-", format!("123456789012-{}", body(24))),
        ("xoxa-", format!("2-{}", body(24))),
        ("AKIA", upper(16)),
        ("ASIA", upper(16)),
        ("AIza", body(35)),
        ("ya29.", body(60)),
        ("npm_", body(36)),
        ("pypi-", body(120)),
        ("hf_", body(34)),
        ("dckr_pat_", body(27)),
        ("SG.", format!("{}.{}", body(22), body(43))),
        ("hvs.", body(90)),
        ("AGE-SECRET-KEY-1", upper(58)),
    ];
    for (prefix, body) in tokens {
        let token = format!("{prefix}{body}");
        let clean = format!("{prefix}{MARK}");
        assert_eq!(line(&token), clean);
        assert_eq!(
            line(&format!("gh auth '{token}' x")),
            format!("gh auth '{clean}' x")
        );
        assert_eq!(line(&format!("f({token})")), format!("f({clean})"));
        assert_eq!(
            argv(&["echo", &format!("a={token}")]),
            ["echo", &format!("a={clean}")]
        );
    }
    let token = format!("eyJ{}.eyJ{}.{}", body(20), body(40), body(43));
    assert_eq!(
        line(&format!("curl -d {token}")),
        format!("curl -d eyJ{MARK}")
    );
    // Quotes inside a token do not hide it.
    let token = format!("ghp_'{}'\"{}\"", body(18), body(18));
    assert!(!line(&token).contains("B2c3"), "{}", line(&token));
}

#[test]
fn private_keys_go_whatever_their_kind() {
    for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
        let (open, close) = (
            format!("-----BEGIN {kind}PRIVATE KEY-----"),
            format!("-----END {kind}PRIVATE KEY-----"),
        );
        let body = body(64);
        let text = format!("cat > k <<E\n{open}\n{body}\n{body}\n{close}\nE");
        assert_eq!(line(&text), format!("cat > k <<E\n{open}{MARK}{close}\nE"));
        assert_eq!(
            argv(&["echo", &format!("{open}\n{body}\n")]),
            ["echo", &format!("{open}{MARK}")]
        );
    }
}

/// In every line the secret is `hunter2`, which must go; the rest stays as expected.
#[test]
fn secrets_are_known_by_where_they_stand() {
    for (text, expected) in [
        ("x --password=hunter2 y", "x --password=[redacted] y"),
        ("x --password hunter2 y", "x --password [redacted] y"),
        (
            "x --password 'hunter2 a b' y",
            "x --password '[redacted]' y",
        ),
        ("x --password=\"hunter2\"", "x --password=\"[redacted]\""),
        ("x --token hunter2", "x --token [redacted]"),
        ("x --api-key hunter2", "x --api-key [redacted]"),
        ("x --apikey=hunter2", "x --apikey=[redacted]"),
        ("x --secret hunter2", "x --secret [redacted]"),
        ("x --client-secret=hunter2", "x --client-secret=[redacted]"),
        ("x --access-token hunter2", "x --access-token [redacted]"),
        ("x --passphrase hunter2", "x --passphrase [redacted]"),
        (
            "x --proxy-password hunter2",
            "x --proxy-password [redacted]",
        ),
        ("x -password hunter2", "x -password [redacted]"),
        (
            "keytool -storepass hunter2",
            "keytool -storepass [redacted]",
        ),
        ("PASSWORD=hunter2 x", "PASSWORD=[redacted] x"),
        ("export PGPASSWORD=hunter2", "export PGPASSWORD=[redacted]"),
        ("MYSQL_PWD=hunter2 mysql", "MYSQL_PWD=[redacted] mysql"),
        ("DB_PASS=hunter2 x", "DB_PASS=[redacted] x"),
        (
            "env GITHUB_TOKEN='hunter2' x",
            "env GITHUB_TOKEN='[redacted]' x",
        ),
        (
            "docker run -e APP_SECRET=hunter2 i",
            "docker run -e APP_SECRET=[redacted] i",
        ),
        (
            "docker run -eAPP_SECRET=hunter2 i",
            "docker run -eAPP_SECRET=[redacted] i",
        ),
        (
            "docker run --env=APP_KEY=hunter2 i",
            "docker run --env=APP_KEY=[redacted] i",
        ),
        (
            "AWS_SECRET_ACCESS_KEY=hunter2 aws s3 ls",
            "AWS_SECRET_ACCESS_KEY=[redacted] aws s3 ls",
        ),
        ("STRIPE_KEY=hunter2 x", "STRIPE_KEY=[redacted] x"),
        (
            "kubectl create secret generic s --from-literal=password=hunter2",
            "kubectl create secret generic s --from-literal=password=[redacted]",
        ),
        (
            "aws configure set aws_secret_access_key hunter2",
            "aws configure set aws_secret_access_key [redacted]",
        ),
        (
            "printf 'aws_secret_access_key = hunter2'",
            "printf 'aws_secret_access_key = [redacted]'",
        ),
        (
            "npm config set //r.test/:_authToken hunter2",
            "npm config set //r.test/:_authToken [redacted]",
        ),
        (
            "echo 'password: hunter2' > f.yaml",
            "echo 'password: [redacted]' > f.yaml",
        ),
        (
            "git clone https://me:hunter2@example.com/r",
            "git clone https://me:[redacted]@example.com/r",
        ),
        (
            "git clone 'https://:hunter2@example.com/r'",
            "git clone 'https://:[redacted]@example.com/r'",
        ),
        (
            "psql postgres://u:hunter2@db.test:5432/x",
            "psql postgres://u:[redacted]@db.test:5432/x",
        ),
        ("x amqp://u:a@hunter2@h/v", "x amqp://u:[redacted]@h/v"),
        (
            "psql 'host=h password=hunter2 dbname=d'",
            "psql 'host=h password=[redacted] dbname=d'",
        ),
        (
            "curl 'https://e.test/?access_token=hunter2&x=1'",
            "curl 'https://e.test/?access_token=[redacted]&x=1'",
        ),
        (
            "curl -d 'user=u&password=hunter2&x=1' e.test",
            "curl -d 'user=u&password=[redacted]&x=1' e.test",
        ),
        (
            "curl -d 'password=hunter2&user=u' e.test",
            "curl -d 'password=[redacted]&user=u' e.test",
        ),
        (
            r#"curl -d '{"password":"hunter2","a":1}' e.test"#,
            r#"curl -d '{"password":"[redacted]","a":1}' e.test"#,
        ),
        (
            r#"curl -d '{"api_key": "hunter2\"x", "a": "b"}'"#,
            r#"curl -d '{"api_key": "[redacted]", "a": "b"}'"#,
        ),
        (
            "python3 -c \"c({'password': 'hunter2'})\"",
            "python3 -c \"c({'password': '[redacted]'})\"",
        ),
        (
            "curl -H 'Authorization: Bearer hunter2' e.test",
            "curl -H 'Authorization: Bearer [redacted]' e.test",
        ),
        (
            "curl -H \"authorization: Basic hunter2\" e.test",
            "curl -H \"authorization: Basic [redacted]\" e.test",
        ),
        (
            "curl -H 'Authorization: hunter2 and more' e.test",
            "curl -H 'Authorization: [redacted]' e.test",
        ),
        (
            "curl -H Authorization:hunter2 e.test",
            "curl -H Authorization:[redacted] e.test",
        ),
        (
            "curl -H 'Cookie: sid=hunter2; a=b' e.test",
            "curl -H 'Cookie: [redacted]' e.test",
        ),
        (
            "curl -H 'X-Api-Key: hunter2' e.test",
            "curl -H 'X-Api-Key: [redacted]' e.test",
        ),
        (
            "curl -H 'My-Token: hunter2' e.test",
            "curl -H 'My-Token: [redacted]' e.test",
        ),
        (
            "cat <<E\nAuthorization: Bearer hunter2\nE",
            "cat <<E\nAuthorization: Bearer [redacted]\nE",
        ),
        (
            "git -c http.extraHeader='Authorization: Basic hunter2' pull",
            "git -c http.extraHeader='Authorization: Basic [redacted]' pull",
        ),
        ("curl -u me:hunter2 e.test", "curl -u me:[redacted] e.test"),
        ("curl -ume:hunter2 e.test", "curl -ume:[redacted] e.test"),
        (
            "curl --user me:hunter2 e.test",
            "curl --user me:[redacted] e.test",
        ),
        (
            "curl --user=me:hunter2 e.test",
            "curl --user=me:[redacted] e.test",
        ),
        (
            "curl -b sid=hunter2 e.test",
            "curl -b sid=[redacted] e.test",
        ),
        (
            "/usr/bin/mysql -u root -phunter2 db",
            "/usr/bin/mysql -u root -p[redacted] db",
        ),
        (
            "sudo -u x mysqldump -phunter2 db",
            "sudo -u x mysqldump -p[redacted] db",
        ),
        ("sshpass -p hunter2 ssh h", "sshpass -p [redacted] ssh h"),
        ("sshpass -phunter2 ssh h", "sshpass -p[redacted] ssh h"),
        (
            "docker login -u me -p hunter2 r.test",
            "docker login -u me -p [redacted] r.test",
        ),
        (
            "redis-cli -h h -a hunter2 ping",
            "redis-cli -h h -a [redacted] ping",
        ),
        ("7z a -phunter2 x.7z d", "7z a -p[redacted] x.7z d"),
        ("unzip -P hunter2 x.zip", "unzip -P [redacted] x.zip"),
        (
            "smbclient //h/s -U 'me%hunter2'",
            "smbclient //h/s -U 'me%[redacted]'",
        ),
        (
            "openssl rsa -passin pass:hunter2 -in k",
            "openssl rsa -passin pass:[redacted] -in k",
        ),
        (
            "nmcli dev wifi connect net password hunter2",
            "nmcli dev wifi connect net password [redacted]",
        ),
        ("mysql -h zip -phunter2", "mysql -h zip -p[redacted]"),
        ("bash -c 'mysql -phunter2'", "bash -c 'mysql -p[redacted]'"),
        (
            "ssh h \"sh -c 'x --password hunter2'\"",
            "ssh h \"sh -c 'x --password [redacted]'\"",
        ),
        (
            "echo don't; x --password hunter2",
            "echo don't; x --password [redacted]",
        ),
        ("x $(y --token hunter2)", "x $(y --token [redacted])"),
        ("x --pass\\\nword hunter2", "x --pass\\\nword [redacted]"),
        ("x \"--pass\"word=hunter2", "x \"--pass\"word=[redacted]"),
    ] {
        assert_eq!(line(text), expected);
        // What was cleaned stays as it is.
        assert_eq!(line(expected), expected);
    }
}

#[test]
fn random_values_after_doubtful_names() {
    let value = body(32);
    for name in ["--key", "--auth", "--license-key", "--session"] {
        assert_eq!(
            line(&format!("x {name} {value}")),
            format!("x {name} {MARK}")
        );
        assert_eq!(
            line(&format!("x {name}={value}")),
            format!("x {name}={MARK}")
        );
    }
    assert_eq!(
        line(&format!("git clone https://{value}@example.com/r")),
        format!("git clone https://{MARK}@example.com/r")
    );
}

#[test]
fn the_value_may_be_the_next_word_of_an_argument_vector() {
    assert_eq!(
        argv(&["x", "--password", "a b", "c"]),
        ["x", "--password", MARK, "c"]
    );
    assert_eq!(argv(&["x", "--password", "-c"]), ["x", "--password", "-c"]);
    assert_eq!(argv(&["x", "--password"]), ["x", "--password"]);
    assert_eq!(
        argv(&["sh", "-c", "curl -u 'a:b c' h"]),
        ["sh", "-c", "curl -u 'a:[redacted]' h"]
    );
    assert_eq!(
        argv(&["env", "A_TOKEN=a b", "x"]),
        ["env", "A_TOKEN=[redacted]", "x"]
    );
}

#[test]
fn harmless_lines_stay() {
    let sha = "3f2504e04f8911d39a0c0305e82c3301deadbeef";
    let hashes = [
        format!("git show {sha}"),
        format!("git checkout {sha} -- src/token.rs"),
        format!(
            "docker pull r.test/my-secret:latest@sha256:{}",
            "ab12".repeat(16)
        ),
        format!(
            "substrate trace spn_{}",
            "01893e4c-7f00-7000-8000-0123456789ab"
        ),
        format!("echo data:image/png;base64,{}", "iVBORw0KGgoAAAANSUhEUg"),
        format!("echo {} | base64 -d", body(40)),
        format!("sha256sum -c <<< '{sha}  file'"),
    ];
    let plain = [
        "mkdir -p secret-dir",
        "docker run -p 8080:80 nginx",
        "docker compose -p project up",
        "ssh -p 2222 host",
        "cp -p a b",
        "psql -p 5432 -U me db",
        "mysql -p db",
        "mysql -u root -h h",
        "x --key=value --sort-key name --primary-key id",
        "sort --key=2,3 file",
        "ssh-keygen -t ed25519 -f ~/.ssh/key",
        "curl --key client.pem --cert client.crt https://example.com",
        "SSL_KEY=./server.key x",
        "PRIVATE_KEY=~/.ssh/id_ed25519 x",
        "docker login --password-stdin r.test",
        "psql --no-password db",
        "x --password-file f --token-file g",
        "x --max-tokens 512 --tokenizer name",
        "ls token secrets password.txt",
        "kubectl get secret my-secret -o yaml",
        "gh secret list",
        "curl -H 'Accept: application/json' https://example.com:8443/a?b=c&d=e",
        "curl -H \"Authorization: Bearer $TOKEN\" https://example.com",
        "curl -u \"$USER:$PASS\" https://example.com",
        "curl -u me https://example.com",
        "git clone git@example.com:me/r.git",
        "git clone ssh://git@example.com/me/r.git",
        "git clone \"https://me:${TOKEN}@example.com/r\"",
        "rsync -a rsync://h:873/module/a@b .",
        "x --password=$PASSWORD --token=\"${TOKEN}\" --secret=$(pass show x)",
        "PASSWORD= x",
        "PWD=/tmp OLDPWD=/ x",
        "SHIM_BYPASS=1 git status",
        "make CFLAGS=-O2 KEY=value COMPASS=north",
        "pip install scikit-learn==1.4.2 sk-learn-extra-tools",
        "npm config get npm_config_cache",
        "sk-very-long-hyphenated-name-of-a-branch",
        "python3 -c 'tokens = [1, 2]; print(tokens[0])'",
        "grep -rn 'password' src",
        "sed 's/token/key/' f",
        "echo 'the secret: of life is not here'",
        "find . -name '*.key' -newer a.pem",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "openssl x509 -in a.crt -noout",
        "tar czf a.tgz -C /srv secret",
        "git commit -m 'Rotate keys; auth: fix session handling'",
    ];
    for text in hashes.iter().map(String::as_str).chain(plain) {
        // One sentence in the table looks exactly like YAML; hiding it costs only replay.
        if text.contains("the secret:") {
            assert_eq!(line(text), "echo 'the secret: [redacted]'");
            continue;
        }
        assert_eq!(line(text), text);
        let words: Vec<&str> = text.split(' ').collect();
        let is_plain = !text.contains(['\'', '"', '$']);
        if is_plain {
            assert_eq!(argv(&words), words);
        }
    }
}

#[test]
fn own_patterns_hide_words_and_values() {
    let redactor = Redactor::new(&["corp-*", "*@internal"]);
    for (text, expected) in [
        ("x corp-1234 y", "x [redacted] y"),
        ("x --id=corp-1234", "x --id=[redacted]"),
        ("x 'me and you@internal'", "x '[redacted]'"),
        ("x acorp-1", "x acorp-1"),
    ] {
        assert_eq!(redactor.line(text.as_bytes()), expected.as_bytes());
    }
}

#[test]
fn long_input_takes_linear_time() {
    for piece in [
        "password=",
        "://a:b@",
        "eyJaaaaaaaaaa.",
        "\"a\":",
        "'",
        "-----BEGIN ",
        "a b ",
        "Cookie: ",
        "set x.token v ",
        "docker -p a -p ",
    ] {
        // A quadratic scan would take minutes for this.
        let text = piece.repeat(200_000 / piece.len());
        Redactor::default().line(text.as_bytes());
        Redactor::default().argv(&[OsString::from(&text), OsString::from(&text)]);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_fine(text: Vec<u8>, words: Vec<Vec<u8>>) {
        Redactor::default().line(&text);
        let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
        prop_assert_eq!(Redactor::default().argv(&words).len(), words.len());
    }

    #[test]
    fn a_flagged_value_never_survives(
        value in "[a-zA-Z0-9!@#%^*_+/]{8,40}",
        flag in "--(db-)?(password|token|api-key|secret)",
        quote in "['\" =]",
    ) {
        let text = match quote.as_str() {
            " " | "=" => format!("tool x {flag}{quote}{value} y"),
            q => format!("tool x {flag} {q}{value}{q} y"),
        };
        let clean = line(&text);
        prop_assert!(!clean.contains(&value), "{}", clean);
    }
}

#[test]
fn every_tool_with_an_option_is_known() {
    for option in OPTIONS {
        for tool in option.tools {
            assert_eq!(known_tool(tool.as_bytes()), Some(*tool));
        }
    }
}

#[test]
fn no_token_is_shorter_than_the_shortest() {
    for token in TOKENS {
        assert!(token.prefix.len() + token.least >= SHORTEST_TOKEN);
    }
}
