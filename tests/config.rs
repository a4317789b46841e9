//! The configuration as its users meet it: files, variables, and what `onceward check` says of them.
//!
//! A fixture is a TOML file; lines `# env: NAME=VALUE` at its top are its environment. Next to it stands what must be said of it.
//! `BLESS=1 cargo test --test config` writes what is said now.

#![expect(clippy::panic, clippy::expect_used, reason = "a test fails by panicking, helpers included")]

#[path = "config/senders.rs"]
mod senders;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onceward::config::model::{PluginRef, StoreUrl, Target};
use onceward::config::{Config, ConfigError, Environment, Fault, Report, load, render_json, render_text};

const BAD: &str = "tests/fixtures/config/bad";

/// What every secret of the fixtures holds, so that a leak is easy to see.
const CANARY: &str = "canary";

fn environment(text: &str) -> Environment {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# env: "));
    lines.map(|line| line.split_once('=').expect("a line `# env: NAME=VALUE`")).collect()
}

/// Loads a configuration that stands in no file of the repository.
fn load_text(text: &str, env: &Environment) -> Result<Config, ConfigError> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("onceward.toml");
    fs::write(&path, text).expect("a file is written");
    load(Some(&path), env)
}

fn good(text: &str, env: &Environment) -> Config {
    load_text(text, env).unwrap_or_else(|error| panic!("{error}"))
}

fn faults(loaded: Result<Config, ConfigError>) -> Vec<Fault> {
    match loaded {
        Err(ConfigError::Faults(faults)) => faults,
        other => panic!("expected faults, got {other:?}"),
    }
}

/// One bad file: refused, with exactly the expected words, none of which is a secret.
fn check(path: &Path) {
    let text = fs::read_to_string(path).expect("a fixture");
    let loaded = load(Some(path), &environment(&text));
    let error = loaded.as_ref().err().unwrap_or_else(|| panic!("{} must be refused", path.display()));
    let report = Report::of(&loaded);
    let said = render_text(&report);
    for words in [&said, &error.to_string(), &format!("{error:?}"), &render_json(&report).to_string()] {
        assert!(!words.contains(CANARY), "{} leaks a secret:\n{words}", path.display());
    }
    let expected_path = path.with_extension("stderr");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&expected_path, &said).expect("a fixture is written");
    }
    let expected = fs::read_to_string(&expected_path).unwrap_or_default();
    assert_eq!(said, expected, "{}", path.display());
}

/// Contract: unknown keys, bad values, missing secrets, unknown upstreams stop the start with all faults listed, each with its key
/// path; secrets are in no text.
#[test]
fn bad_files_are_refused_with_every_fault() {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(BAD).expect("the fixtures").map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    assert!(paths.len() > 10, "the fixtures are there");
    paths.iter().for_each(|path| check(path));
}

/// A file that is not there is told from one that is wrong.
#[test]
fn an_unreadable_file_is_its_own_error() {
    let missing = load(Some(Path::new("no/such.toml")), &Environment::default());
    assert!(matches!(missing, Err(ConfigError::Unreadable { .. })), "{missing:?}");
}

/// Without a file there are the defaults, which are a whole configuration.
#[test]
fn the_defaults_alone_are_valid() {
    let config = load(None, &Environment::default()).expect("valid");
    assert_eq!(config.store.url, StoreUrl::Sqlite("onceward.db".into()));
    assert!(config.routes.is_empty());
}

/// The README's first command works: no fault, and only the warnings that a trial deserves.
#[test]
fn the_quickstart_is_valid_and_warns_of_what_is_for_trying_out() {
    let loaded = load(Some(Path::new("config/quickstart.toml")), &Environment::default());
    let report = Report::of(&loaded);
    assert_eq!(report.faults, []);
    assert_eq!(report.notices, []);
    let paths: Vec<&str> = report.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(paths, ["tenants.demo.secrets.stripe[0].value", "routes[0].plugin_config"]);
    let config = loaded.expect("valid");
    assert_eq!(config.upstreams["echo"].target, Target::Echo);
    assert_eq!(config.routes[0].plugin, PluginRef::Bundled("json".into()));
}

/// The example to copy is clean once its variables are set, and refused by name while they are not.
#[test]
fn the_example_is_clean_with_its_variables() {
    let path = Some(Path::new("config/examples/payments-redis.toml"));
    let env = [
        ("ONCEWARD_STORE__URL", "rediss://onceward:canary@redis.internal:6379/0"),
        ("ACME_STRIPE_SECRET", "canary-new"),
        ("ACME_STRIPE_SECRET_OLD", "canary-old"),
        ("GLOBEX_PARTNER_SECRET", "canary-partner"),
    ];
    let loaded = load(path, &env.into_iter().collect());
    assert_eq!(Report::of(&loaded), Report::default());
    let config = loaded.expect("valid");
    let secrets: Vec<&str> = config.tenants["acme"].secrets["stripe"].iter().map(|secret| secret.expose()).collect();
    assert_eq!(secrets, ["canary-new", "canary-old"], "newest first");
    assert!(!format!("{config:?}").contains(CANARY), "secrets are not printed");
    assert!(format!("{config:?}").contains("redis.internal"), "the store's host is");

    let missing: Vec<String> =
        faults(load(path, &Environment::default())).into_iter().map(|fault| fault.path).collect();
    let expected = ["acme.secrets.stripe[0]", "acme.secrets.stripe[1]", "globex.secrets.partner[0]"];
    assert_eq!(missing, expected.map(|path| format!("tenants.{path}.env")));
}

const ROUTE: &str = r#"
[upstreams.echo]
url = "builtin:echo"

[[routes]]
tenant = "acme"
name = "orders"
path = "/orders"
plugin = "json"
upstream = "echo"
"#;

/// Contract: embedded defaults < file < environment, sub-tables key by key, also an inline table over a table of the defaults.
#[test]
fn tables_merge_key_by_key() {
    let file = format!(
        r#"
server.timeouts = {{ idle = "90s", body = "20s" }}
[idempotency]
in_flight = {{ status = 425 }}
replay = {{ body = "none" }}
{ROUTE}
[routes.idempotency]
in_flight = {{ wait = "5s" }}
replay = {{ max_body = 10 }}
"#
    );
    let env = [("ONCEWARD_SERVER__TIMEOUTS__BODY", "7s"), ("ONCEWARD_IDEMPOTENCY__FAILED_WINDOW", "1h")];
    let config = good(&file, &env.into_iter().collect());
    let timeouts = config.server.timeouts;
    assert_eq!(timeouts.header, Duration::from_secs(10), "the default");
    assert_eq!(timeouts.idle, Duration::from_secs(90), "the file over the default");
    assert_eq!(timeouts.body, Duration::from_secs(7), "the environment over the file");
    let policy = &config.routes[0].policy;
    assert_eq!((policy.in_flight.wait, policy.in_flight.status), (Duration::from_secs(5), 425));
    assert_eq!((policy.replay.max_body, policy.replay.body), (10, onceward::idempotency::policy::ReplayBody::None));
    assert_eq!(policy.replay.drop_headers, ["set-cookie"], "the default, two tables up");
    assert_eq!(policy.failed_window, Duration::from_hours(1));
}

/// Contract: a variable counts when it starts with `ONCEWARD_`, has `__` and names a known table; its value is TOML, or else text.
#[test]
fn variables_count_by_their_name_and_are_toml_or_text() {
    let env = [
        ("ONCEWARD_CONFIG", "left alone"),
        ("ONCEWARD_FOO", "left alone"),
        ("ONCEWARD_FOO__BAR", "left alone"),
        ("ONCEWARD_STORE_URL", "left alone"),
        ("STORE__URL", "left alone"),
        ("onceward_store__url", "left alone"),
        ("ONCEWARD_SERVER__LISTEN", r#"["127.0.0.1:0", "[::1]:0"]"#),
        ("ONCEWARD_SERVER__MAX_BODY", "2048"),
        ("ONCEWARD_SERVER__DRAIN", r#"{ delay = "3s" }"#),
        ("ONCEWARD_STORE__URL", "redis://127.0.0.1:7000/1"),
        ("ONCEWARD_STORE__TIMEOUT", "\"2s\""),
        ("ONCEWARD_SERVER__STATE_DIR", "a\nb = 1"),
        ("ONCEWARD_UPSTREAMS__BILLING__URL", "http://127.0.0.1:9000/prefix/"),
        ("ONCEWARD_TENANTS__ACME__SECRETS__STRIPE", r#"[{ env = "S" }]"#),
        ("S", "the secret"),
    ];
    let config = good("", &env.into_iter().collect());
    assert_eq!(config.server.listen.len(), 2);
    assert_eq!(config.server.max_body, 2048);
    assert_eq!(config.server.drain.delay, Duration::from_secs(3));
    assert_eq!(config.server.drain.deadline, Duration::from_secs(30), "merged with the default");
    assert_eq!(config.store.url, StoreUrl::Redis("redis://127.0.0.1:7000/1".into()));
    assert_eq!(config.store.timeout, Duration::from_secs(2));
    assert_eq!(config.server.state_dir, Path::new("a\nb = 1"), "text stays one value");
    let Target::Http { authority, prefix, .. } = &config.upstreams["billing"].target else {
        panic!("an HTTP upstream")
    };
    assert_eq!((authority.as_str(), prefix.as_str()), ("127.0.0.1:9000", "/prefix"));
    assert_eq!(config.tenants["acme"].secrets["stripe"][0].expose(), "the secret");
}

/// A secret's file loses the newline that editors leave, and nothing else.
#[test]
fn a_secret_file_loses_one_newline_at_its_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (content, secret) in [("s", "s"), ("s\n", "s"), ("s\r\n", "s"), ("s\n\n", "s\n"), (" s \n", " s ")] {
        let path = dir.path().join("secret");
        fs::write(&path, content).expect("a file is written");
        let file = format!("tenants.acme.secrets.a = [{{ file = {:?} }}]", path.display().to_string());
        let config = good(&file, &Environment::default());
        assert_eq!(config.tenants["acme"].secrets["a"][0].expose(), secret, "{content:?}");
    }
}

/// A tenant that only routes name, a route with nothing but what it must have: the contract's defaults.
#[test]
fn a_bare_route_has_the_defaults() {
    let config = good(ROUTE, &Environment::default());
    assert!(config.tenants.contains_key("acme"));
    let route = &config.routes[0];
    assert_eq!((route.scope.as_str(), route.refuse_status), ("orders", 401));
    assert_eq!(route.methods, [http::Method::POST]);
    assert_eq!(route.policy.window, Duration::from_hours(30 * 24));
    assert_eq!(route.plugin_config, serde_json::json!({}));
}

/// Short leases are for those who want them, and the tail's capture is named as the others are.
#[test]
fn small_leases_and_captures_are_read() {
    let file = ROUTE.replace("/orders", "/{shop}/{*rest}");
    let file = format!("{file}upstream_path = \"/in/{{*rest}}/{{shop}}\"\nidempotency.lease = \"200ms\"\n");
    let config = good(&file, &Environment::default());
    assert_eq!(config.routes[0].upstream_path.as_deref(), Some("/in/{rest}/{shop}"));
    assert_eq!(config.routes[0].policy.lease, Duration::from_millis(200));
}

/// Contract: `check` says of a feature that is not built yet that it is not active, and warns of what is probably a mistake.
#[test]
fn notices_and_warnings_name_their_keys() {
    let file = format!(
        r#"
admin.tokens = [{{ name = "ops", sha256 = "{digest}", scope = "tenant:acme" }}]
store.url = "memory:"
store.encryption_keys = [{{ value = "{CANARY}-0123456789" }}]
plugins.registry = "s3://bucket"
tenants.acme.limits = {{ rate = "1/s" }}
tenants.acme.compat = true
upstreams.slow = {{ url = "http://127.0.0.1:9000", idle_timeout = "60s", connect_timeout = "3s" }}
{ROUTE}
[[routes]]
tenant = "acme"
name = "uploaded"
path = "/uploaded"
plugin = "acme/orders"
upstream = "slow"
capture = {{}}
[routes.idempotency]
window = "2d"
lease = "1s"
body_alias = true
store_down = "forward"
plugin_failure = "previous"
keep_request = "attention"
in_flight = {{ wait = "11s" }}
replay = {{ redact = ["/card"] }}
"#,
        digest = "ab".repeat(32)
    );
    let loaded = load_text(&file, &Environment::default());
    let report = Report::of(&loaded);
    let said = render_text(&report);
    let lines: Vec<&str> = said.lines().map(|line| line.rsplit_once(": ").map_or(line, |(path, _)| path)).collect();
    let key = |line: &str| line.split(": ").take(2).collect::<Vec<_>>().join(": ");
    let keys: Vec<String> = lines.iter().map(|line| key(line)).collect();
    let expected = [
        "notice: tenants.acme.compat",
        "warning: store.url",
        "warning: store.encryption_keys[0].value",
        "warning: upstreams.slow.idle_timeout",
        "warning: routes[0].plugin_config",
        "warning: routes[1].idempotency.window",
        "warning: routes[1].idempotency.in_flight.wait",
        "warning: routes[1].idempotency.store_down",
        "warning: routes[1].idempotency.lease",
        "warning: routes[1].idempotency.lease",
    ];
    assert_eq!(keys[..keys.len() - 1], expected, "{said}");
    assert!(said.ends_with("ok: 0 faults, 1 notice, 9 warnings\n"), "{said}");
    assert!(report.notices.iter().all(|notice| notice.text.ends_with("is not active in this version")), "{said}");
    let json = render_json(&report);
    assert_eq!(json["ok"], true);
    assert_eq!(json["notices"].as_array().map(Vec::len), Some(1));
    assert!(!said.contains(CANARY) && !format!("{loaded:?}").contains(CANARY));
}

/// What encrypts must be long enough not to be guessed, and what is redacted holds no id to refer to.
#[test]
fn what_is_kept_is_checked() {
    let file = format!("store.encryption_keys = [{{ value = \"{CANARY}-01234567\" }}]\n{ROUTE}");
    let found = faults(load_text(&file, &Environment::default()));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].to_string().contains("store.encryption_keys: a key is shorter than 16 bytes"), "{found:?}");
    for (redact, resource_id, refused) in
        [("/card", "/card/id", true), ("/card", "/card", true), ("/card", "/cards", false), ("/a/b", "/a", false)]
    {
        let replay = format!("replay = {{ redact = [\"{redact}\"], resource_id = \"{resource_id}\" }}");
        let loaded = load_text(&format!("{ROUTE}idempotency.{replay}\n"), &Environment::default());
        assert_eq!(loaded.is_err(), refused, "{replay}: {loaded:?}");
    }
}

/// The environment may be logged whole by mistake: its values stay out.
#[test]
fn an_environment_prints_names_only() {
    let env: Environment = [("SECRET", CANARY)].into_iter().collect();
    let printed = format!("{env:?}");
    assert!(printed.contains("SECRET") && !printed.contains(CANARY), "{printed}");
}
