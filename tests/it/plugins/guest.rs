//! Writes guests that do exactly what a test wants: a template in WebAssembly text, and results laid out by the canonical ABI.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Where a guest's results begin.
const BASE: u32 = 4096;

/// The memory of a guest, filled from `BASE` on.
#[derive(Default)]
pub struct Memory {
    bytes: Vec<u8>,
}

/// Something that lies in the memory: its address and its length, in items.
#[derive(Clone, Copy)]
pub struct Slice {
    pub at: u32,
    pub len: u32,
}

impl Memory {
    /// Puts bytes down, at an address that any record may start at.
    pub fn put(&mut self, bytes: &[u8]) -> Slice {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = BASE + u32::try_from(self.bytes.len()).unwrap();
        self.bytes.extend(bytes);
        Slice { at, len: u32::try_from(bytes.len()).unwrap() }
    }

    /// A list of records, each of which `write` lays out.
    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T) -> Vec<u8>) -> Slice {
        let records: Vec<Vec<u8>> = items.iter().map(|item| write(self, item)).collect();
        Slice { len: u32::try_from(items.len()).unwrap(), ..self.put(&records.concat()) }
    }

    fn texts(&mut self, texts: &[&str]) -> Slice {
        self.list(texts, |memory, text| memory.put(text.as_bytes()).pair())
    }

    fn headers(&mut self, lines: &[(&str, &[u8])]) -> Slice {
        self.list(lines, |memory, (name, value)| {
            [memory.put(name.as_bytes()).pair(), memory.put(value).pair()].concat()
        })
    }
}

impl Slice {
    fn pair(self) -> Vec<u8> {
        [self.at.to_le_bytes(), self.len.to_le_bytes()].concat()
    }
}

/// A material value.
#[derive(Clone)]
pub enum Material {
    Text(String),
    Number(&'static str),
}

/// An event as a test writes it.
#[derive(Clone, Default)]
pub struct Told {
    pub key: Vec<&'static str>,
    pub aliases: Vec<Vec<&'static str>>,
    pub material: Vec<(String, Material)>,
}

impl Told {
    pub fn key(parts: &[&'static str]) -> Self {
        Self { key: parts.to_vec(), ..Self::default() }
    }

    fn write(&self, memory: &mut Memory) -> Vec<u8> {
        let key = memory.texts(&self.key);
        let aliases = memory.list(&self.aliases, |memory, alias| memory.texts(alias).pair());
        let material = memory.list(&self.material, |memory, (name, value)| {
            let name = memory.put(name.as_bytes());
            let (case, text) = match value {
                Material::Text(text) => (0_u32, memory.put(text.as_bytes())),
                Material::Number(token) => (1, memory.put(token.as_bytes())),
            };
            [name.pair(), case.to_le_bytes().to_vec(), text.pair()].concat()
        });
        let signed = 1_u32.to_le_bytes().to_vec();
        [key.pair(), aliases.pair(), signed, material.pair(), vec![0; 24]].concat()
    }
}

/// A guest in the making. Its functions answer well until a test says otherwise.
pub struct GuestCode {
    memory: Memory,
    start: String,
    describe: String,
    examine: String,
    verify: String,
    extract: String,
    good_verify: String,
    good_extract: String,
}

impl GuestCode {
    /// Verifies everything, and names one event with the key `k`.
    pub fn new() -> Self {
        let mut code = Self {
            memory: Memory::default(),
            start: String::new(),
            describe: String::new(),
            examine: String::new(),
            verify: String::new(),
            extract: String::new(),
            good_verify: String::new(),
            good_extract: String::new(),
        };
        let texts = ["guest", "1.2.3", ""].map(|text| code.memory.put(text.as_bytes()).pair()).concat();
        code.describe = code.result(&[texts, vec![0; 12]].concat());
        let headers = code.memory.texts(&["X-Wanted"]);
        let empty = Slice { at: BASE, len: 0 };
        let needs = [vec![0; 4], headers.pair(), empty.pair(), vec![0; 4], empty.pair(), empty.pair()].concat();
        code.examine = code.result(&needs);
        code = code.verified().process(&[Told::key(&["k"])]);
        code.good_verify = code.verify.clone();
        code.good_extract = code.extract.clone();
        code
    }

    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Code of the start function.
    pub fn start(mut self, body: &str) -> Self {
        self.start = body.into();
        self
    }

    /// Code of `describe`.
    pub fn describe(mut self, body: &str) -> Self {
        self.describe = body.into();
        self
    }

    /// What it says of itself beside its name.
    pub fn called(mut self, version: &str, namespace: &str) -> Self {
        let texts = ["guest", version, namespace].map(|text| self.memory.put(text.as_bytes()).pair()).concat();
        self.describe = self.result(&[texts, vec![0; 12]].concat());
        self
    }

    /// Code of `verify`.
    pub fn verify(mut self, body: &str) -> Self {
        self.verify = body.into();
        self
    }

    /// Code of `extract`.
    pub fn extract(mut self, body: &str) -> Self {
        self.extract = body.into();
        self
    }

    /// Code put before that of `verify`.
    pub fn first(mut self, body: &str) -> Self {
        self.verify = format!("{body} {}", self.verify);
        self
    }

    pub fn verified(mut self) -> Self {
        self.verify = self.result(&[0; 40]);
        self
    }

    pub fn unsigned(mut self) -> Self {
        self.verify = self.verdict(1, &[]);
        self
    }

    pub fn stale(mut self, seconds: i64) -> Self {
        self.verify = self.verdict(3, &seconds.to_le_bytes());
        self
    }

    /// `invalid`, for a bad signature.
    pub fn invalid(mut self, detail: &str, status: Option<u16>) -> Self {
        let detail = self.memory.put(detail.as_bytes()).pair();
        let status = [u16::from(status.is_some()), status.unwrap_or_default()].map(u16::to_le_bytes).concat();
        self.verify = self.verdict(2, &[vec![0; 4], detail, status].concat());
        self
    }

    /// `verify` fails with case `case` of `plugin-error`.
    pub fn verify_error(mut self, case: u8, text: &str) -> Self {
        let text = self.memory.put(text.as_bytes()).pair();
        self.verify = self.result(&[vec![1, 0, 0, 0, 0, 0, 0, 0, case, 0, 0, 0], text, vec![0; 16]].concat());
        self
    }

    pub fn process(self, events: &[Told]) -> Self {
        self.disposition(0, |memory| memory.list(events, |memory, event| event.write(memory)).pair())
    }

    /// A list of events that is `len` long, wherever it lies.
    pub fn process_raw(self, at: u32, len: u32) -> Self {
        self.disposition(0, |_| Slice { at, len }.pair())
    }

    pub fn respond(self, status: u16, headers: &[(&str, &[u8])], body: &[u8]) -> Self {
        self.disposition(1, |memory| {
            let (headers, body) = (memory.headers(headers), memory.put(body));
            [u32::from(status).to_le_bytes().to_vec(), headers.pair(), body.pair()].concat()
        })
    }

    pub fn pass(self, why: &[u8]) -> Self {
        self.disposition(2, |memory| memory.put(why).pair())
    }

    pub fn reject(self, status: u16, code: &str, detail: &str) -> Self {
        self.disposition(3, |memory| {
            let (code, detail) = (memory.put(code.as_bytes()), memory.put(detail.as_bytes()));
            [u32::from(status).to_le_bytes().to_vec(), code.pair(), detail.pair()].concat()
        })
    }

    /// Code that calls hmac-verify of SHA-256 over the body with a secret's text, and traps unless the answer is `expect`: a
    /// truth, or the number of a crypto-error.
    pub fn check_hmac(mut self, secret: &str, tag: &[u8], expect: Result<bool, u8>) -> Self {
        let name = self.memory.put(secret.as_bytes());
        let body = self.memory.put(&[0; 12]);
        let tag = self.memory.put(tag);
        let (case, value) = match expect {
            Ok(truth) => (0, u8::from(truth)),
            Err(error) => (1, error),
        };
        let body = format!(
            "(call $hmac_verify (i32.const {}) (i32.const {}) (i32.const 0) (i32.const 1) (i32.const {}) (i32.const 1) \
             (i32.const {}) (i32.const {}) (i32.const 64)) \
             (if (i32.ne (i32.load8_u (i32.const 64)) (i32.const {case})) (then unreachable)) \
             (if (i32.ne (i32.load8_u (i32.const 65)) (i32.const {value})) (then unreachable))",
            name.at, name.len, body.at, tag.at, tag.len
        );
        self.first(&body)
    }

    fn verdict(&mut self, case: u8, payload: &[u8]) -> String {
        let mut bytes = vec![0; 16];
        bytes[8] = case;
        bytes.extend(payload);
        bytes.resize(40, 0);
        self.result(&bytes)
    }

    fn disposition(mut self, case: u32, payload: impl FnOnce(&mut Memory) -> Vec<u8>) -> Self {
        let payload = payload(&mut self.memory);
        let mut bytes = [0_u32.to_le_bytes(), case.to_le_bytes()].concat();
        bytes.extend(payload);
        bytes.resize(28, 0);
        self.extract = self.result(&bytes);
        self
    }

    fn result(&mut self, bytes: &[u8]) -> String {
        format!("(i32.const {})", self.memory.put(bytes).at)
    }

    /// The component.
    pub fn build(self) -> Vec<u8> {
        let memory: String = self.memory.bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        let text = include_str!("../../fixtures/guests/plugin.wat")
            .replace("{{memory}}", &memory)
            .replace("{{start}}", &self.start)
            .replace("{{describe}}", &self.describe)
            .replace("{{examine}}", &self.examine)
            .replace("{{verify}}", &self.verify)
            .replace("{{good verify}}", &self.good_verify)
            .replace("{{good extract}}", &self.good_extract)
            .replace("{{extract}}", &self.extract);
        let module = wat::parse_str(text).unwrap();
        componentize(module, include_str!("../../../wit/onceward-plugin-0.1/plugin.wit"), "plugin")
    }
}

/// Wraps a core module into a component of a world.
pub fn componentize(mut module: Vec<u8>, wit: &str, world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("plugin.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}
