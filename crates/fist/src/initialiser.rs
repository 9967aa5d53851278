//! Structures with designated initialisers: operation vectors and types of file systems.

use std::ops::Range;

use tree_sitter::Node;

use crate::source::{Bare, Source};

/// Types of operation vectors.
pub(crate) const VECTORS: [&str; 4] =
    ["file_operations", "inode_operations", "address_space_operations", "super_operations"];

/// The type that names a file system.
pub(crate) const FILE_SYSTEM: &str = "file_system_type";

/// Entries of vectors that are no functions.
const NO_HANDLERS: [&str; 3] = ["owner", "mmap_supported_flags", "fop_flags"];

/// A structure of one of these types, with its entries.
#[derive(Debug)]
pub(crate) struct Initialiser {
    pub(crate) type_name: String,
    pub(crate) name: String,
    /// The whole declaration.
    pub(crate) range: Range<usize>,
    /// The list, braces included.
    pub(crate) list: Range<usize>,
    pub(crate) entries: Vec<Entry>,
    /// What stands in the list without saying to which entry it belongs.
    pub(crate) positional: Option<Range<usize>>,
    /// It is a variable of a function.
    pub(crate) is_local: bool,
}

/// `.field = value`.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) field: String,
    pub(crate) range: Range<usize>,
    pub(crate) value: Range<usize>,
    pub(crate) handler: Handler,
}

/// What an entry is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Handler {
    /// No function: NULL, or an entry that is none.
    None,
    /// A name.
    Named(String),
    /// Something else, which may be a function.
    Opaque,
}

impl Initialiser {
    pub(crate) fn is_vector(&self) -> bool {
        VECTORS.contains(&self.type_name.as_str())
    }

    pub(crate) fn entry(&self, field: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.field == field)
    }
}

/// Takes what a declaration declares, if it is of such a type.
pub(crate) fn collect(source: &mut Source, node: Node<'_>, is_inner: bool) {
    let Some(of_type) = node.child_by_field_name("type") else { return };
    let named =
        of_type.kind() == "struct_specifier" && of_type.child_by_field_name("body").is_none();
    let Some(name) = of_type.child_by_field_name("name").filter(|_| named) else { return };
    let type_name = source.text(&name.byte_range()).to_owned();
    if !VECTORS.contains(&type_name.as_str()) && type_name != FILE_SYSTEM {
        return;
    }
    let head = node.start_byte()..of_type.start_byte();
    let is_extern = source.tokens_in(&head).iter().any(|t| t.is_word(&source.bytes, "extern"));
    let mut cursor = node.walk();
    let declarators: Vec<Node<'_>> =
        node.children_by_field_name("declarator", &mut cursor).collect();
    for declarator in declarators {
        match declarator.kind() {
            "init_declarator" => initialised(source, node, declarator, &type_name, is_inner),
            "identifier" | "field_identifier" | "array_declarator" if !is_extern => {
                let name = source.text(&declarator.byte_range()).to_owned();
                let range = node.byte_range();
                let type_name = type_name.clone();
                source.bare.push(Bare { type_name, name, range, is_inner });
            }
            _ => {}
        }
    }
}

fn initialised(
    source: &mut Source,
    node: Node<'_>,
    declarator: Node<'_>,
    type_name: &str,
    is_local: bool,
) {
    let (Some(name), Some(value)) =
        (declarator.child_by_field_name("declarator"), declarator.child_by_field_name("value"))
    else {
        return;
    };
    if value.kind() != "initializer_list" || name.kind() == "pointer_declarator" {
        return;
    }
    let text = source.text(&name.byte_range()).to_owned();
    if name.kind() == "array_declarator" {
        let mut cursor = value.walk();
        let lists: Vec<Node<'_>> = value
            .named_children(&mut cursor)
            .filter(|child| child.kind() == "initializer_list")
            .collect();
        let base: String = text.chars().take_while(|c| *c != '[').collect();
        for (index, list) in lists.into_iter().enumerate() {
            let name = format!("{base}[{index}]");
            let found = initialiser(source, node, list, type_name, name, is_local);
            source.initialisers.push(found);
        }
        return;
    }
    let found = initialiser(source, node, value, type_name, text, is_local);
    source.initialisers.push(found);
}

fn initialiser(
    source: &Source,
    node: Node<'_>,
    list: Node<'_>,
    type_name: &str,
    name: String,
    is_local: bool,
) -> Initialiser {
    let mut entries = Vec::new();
    let mut positional = None;
    let mut cursor = list.walk();
    for child in list.named_children(&mut cursor) {
        match child.kind() {
            "comment" => {}
            "initializer_pair" => match entry(source, child) {
                Some(found) => entries.push(found),
                None => positional = positional.or(Some(child.byte_range())),
            },
            _ => positional = positional.or(Some(child.byte_range())),
        }
    }
    Initialiser {
        type_name: type_name.to_owned(),
        name,
        range: node.byte_range(),
        list: list.byte_range(),
        entries,
        positional,
        is_local,
    }
}

fn entry(source: &Source, pair: Node<'_>) -> Option<Entry> {
    let mut cursor = pair.walk();
    let designators: Vec<Node<'_>> =
        pair.children_by_field_name("designator", &mut cursor).collect();
    let [designator] = designators[..] else { return None };
    let field = designator.named_child(0).filter(|_| designator.kind() == "field_designator")?;
    let field = source.text(&field.byte_range()).to_owned();
    let value = pair.child_by_field_name("value")?;
    let handler = handler(source, &field, value);
    Some(Entry { field, range: pair.byte_range(), value: value.byte_range(), handler })
}

fn handler(source: &Source, field: &str, value: Node<'_>) -> Handler {
    let text = source.text(&value.byte_range());
    if NO_HANDLERS.contains(&field) || matches!(text, "NULL" | "0" | "((void *)0)") {
        return Handler::None;
    }
    match value.kind() {
        "identifier" => Handler::Named(text.to_owned()),
        "null" => Handler::None,
        "pointer_expression" => {
            let inner =
                value.child_by_field_name("argument").filter(|inner| inner.kind() == "identifier");
            inner.map_or(Handler::Opaque, |inner| {
                Handler::Named(source.text(&inner.byte_range()).to_owned())
            })
        }
        _ => Handler::Opaque,
    }
}
