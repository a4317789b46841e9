//! What `plugin.wit` says, as Rust types. Generated; the rest of the crate gives it a shape.

#![expect(missing_docs, reason = "the interface file documents every item; the generator carries over what it can")]

wit_bindgen::generate!({
    path: "../../wit/onceward-plugin-0.1",
    world: "plugin",
    pub_export_macro: true,
    export_macro_name: "export_component",
    default_bindings_module: "onceward_plugin::bindings",
    additional_derives: [PartialEq],
});
