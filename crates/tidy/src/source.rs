//! One Rust file: its lines, its tokens (so that strings and comments are not taken for code) and its functions.

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A parsed Rust file.
pub struct RustFile {
    /// Path from the root of the tree.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Every identifier and keyword in it, also inside macro calls.
    pub idents: Vec<Ident>,
    /// Every function with a body.
    pub functions: Vec<Function>,
    /// Names of types, traits, modules, constants and functions that it defines, with their lines.
    pub defined: Vec<(String, usize)>,
    /// Lines outside of `#[cfg(test)]` modules; 0 for a file that is all tests.
    pub lines_without_tests: usize,
}

/// An identifier or keyword.
pub struct Ident {
    /// Its spelling.
    pub name: String,
    /// Its line, from 1.
    pub line: usize,
    /// Whether `!` follows, as in a macro call.
    pub is_macro: bool,
    /// Whether it is the whole of an attribute's path, as `ignore` in `#[ignore]`.
    pub is_attribute: bool,
}

/// A function with a body.
pub struct Function {
    /// Its name.
    pub name: String,
    /// The type, trait or module around it; empty at the top of a file.
    pub owner: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines from its signature to its closing brace.
    pub lines: usize,
    /// Whether it is a test or stands in a test module or file.
    pub is_test: bool,
}

impl RustFile {
    /// Parses a file.
    ///
    /// # Panics
    /// If it is not Rust.
    pub fn parse(path: PathBuf, text: String) -> Self {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut idents = Vec::new();
        collect_idents(tokens.clone(), &mut idents);
        let tree: syn::File = syn::parse2(tokens).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let all_tests = is_test_path(&path);
        let mut walk = Walk { in_test: all_tests, ..Walk::default() };
        walk.visit_file(&tree);
        let lines = if all_tests { 0 } else { text.lines().count() - walk.test_lines };
        Self { path, text, idents, functions: walk.functions, defined: walk.defined, lines_without_tests: lines }
    }

    /// The `//!` lines at its top, without the marks.
    pub fn header(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| format!("{}\n", line.trim())).collect()
    }
}

/// Files that hold nothing but tests: those of `tests/` and `benches/` directories, `tests.rs`, `*_test.rs`.
fn is_test_path(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem == "tests"
        || stem.ends_with("_test")
        || stem.ends_with("_tests")
        || path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "benches")
}

fn collect_idents(tokens: TokenStream, idents: &mut Vec<Ident>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut after_hash = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) => {
                let is_macro = matches!(tokens.peek(), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
                let line = ident.span().start().line;
                idents.push(Ident { name: ident.to_string(), line, is_macro, is_attribute: false });
                after_hash = false;
            }
            TokenTree::Group(group) => {
                let first = idents.len();
                collect_idents(group.stream(), idents);
                if let (true, Some(ident)) = (after_hash, idents.get_mut(first)) {
                    ident.is_attribute = true;
                }
                after_hash = false;
            }
            TokenTree::Punct(mark) => after_hash = mark.as_char() == '#' || (after_hash && mark.as_char() == '!'),
            TokenTree::Literal(_) => after_hash = false,
        }
    }
}

#[derive(Default)]
struct Walk {
    functions: Vec<Function>,
    defined: Vec<(String, usize)>,
    owner: String,
    in_test: bool,
    test_lines: usize,
}

impl Walk {
    fn function(&mut self, signature: &syn::Signature, body: Span, attributes: &[syn::Attribute]) {
        let line = signature.span().start().line;
        let is_test = self.in_test || attributes.iter().any(|attribute| attribute.path().is_ident("test"));
        let lines = body.end().line + 1 - line;
        let name = signature.ident.to_string();
        self.functions.push(Function { name, owner: self.owner.clone(), line, lines, is_test });
    }

    fn define(&mut self, ident: &syn::Ident) {
        self.defined.push((ident.to_string(), ident.span().start().line));
    }

    fn inside(&mut self, owner: String, walk: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        walk(self);
        self.owner = outer;
    }
}

impl<'ast> Visit<'ast> for Walk {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.define(&item.ident);
        let starts_tests = !self.in_test && is_cfg_test(&item.attrs);
        if starts_tests {
            self.test_lines += item.span().end().line + 1 - item.span().start().line;
        }
        let outer = self.in_test;
        self.in_test |= starts_tests;
        self.inside(item.ident.to_string(), |walk| visit::visit_item_mod(walk, item));
        self.in_test = outer;
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.inside(owner.unwrap_or_default(), |walk| visit::visit_item_impl(walk, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.define(&item.ident);
        self.inside(item.ident.to_string(), |walk| visit::visit_item_trait(walk, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.define(&item.sig.ident);
        self.function(&item.sig, item.block.span(), &item.attrs);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.define(&item.sig.ident);
        self.function(&item.sig, item.block.span(), &item.attrs);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.define(&item.sig.ident);
        if let Some(body) = &item.default {
            self.function(&item.sig, body.span(), &item.attrs);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.define(&item.ident);
        visit::visit_item_union(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define(&item.ident);
        visit::visit_item_type(self, item);
    }
}

fn is_cfg_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let mut names = Vec::new();
        if let syn::Meta::List(list) = &attribute.meta {
            collect_idents(list.tokens.clone(), &mut names);
        }
        let negated = names.iter().any(|ident| ident.name == "not");
        attribute.path().is_ident("cfg") && !negated && names.iter().any(|ident| ident.name == "test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r##"//! A file.
//! # Safety
//! None.

/// unsafe in a comment
const TEXT: &str = "unsafe todo!()";

trait Shape {
    fn area(&self) -> u64;
    fn twice(&self) -> u64 {
        2 * self.area()
    }
}

impl Shape for Square {
    fn area(&self) -> u64 { 1 }
}

#[cfg(test)]
mod tests {
    #[test]
    #[ignore]
    fn checks() {
        todo!()
    }
}
"##;

    #[test]
    fn code_is_told_from_text_and_tests_from_code() {
        let file = RustFile::parse("crates/x/src/a.rs".into(), FILE.to_owned());
        assert_eq!(file.header(), "A file.\n# Safety\nNone.\n");
        assert!(file.idents.iter().all(|ident| ident.name != "unsafe"));
        let macros: Vec<_> = file.idents.iter().filter(|ident| ident.is_macro).map(|i| (&*i.name, i.line)).collect();
        assert_eq!(macros, [("todo", 24)]);
        assert!(file.idents.iter().any(|ident| ident.is_attribute && ident.name == "ignore"));
        let functions: Vec<_> =
            file.functions.iter().map(|f| (&*f.owner, &*f.name, f.line, f.lines, f.is_test)).collect();
        assert_eq!(
            functions,
            [("Shape", "twice", 10, 3, false), ("Square", "area", 16, 1, false), ("tests", "checks", 23, 3, true)]
        );
        assert_eq!(file.lines_without_tests, FILE.lines().count() - 8);
    }

    #[test]
    fn test_files_have_no_other_lines() {
        let file = RustFile::parse("crates/x/tests/a.rs".into(), "//! x\nfn f() {}\n".to_owned());
        assert_eq!((file.lines_without_tests, file.functions[0].is_test), (0, true));
    }
}
