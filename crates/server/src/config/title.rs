//! Templates of the process title: text with `{variable}`, and `{{` for a brace.

/// The variables a template may use.
pub const VARIABLES: &[&str] =
    &["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];

/// The template with each variable replaced by what `value` gives for it.
///
/// `None` where a brace is not closed or `value` does not know a variable.
pub fn expand(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut expanded = String::new();
    let mut rest = template;
    while let Some(brace) = rest.find('{') {
        expanded.push_str(&rest[..brace]);
        rest = &rest[brace + 1..];
        if let Some(after) = rest.strip_prefix('{') {
            expanded.push('{');
            rest = after;
        } else {
            let (name, after) = rest.split_once('}')?;
            expanded.push_str(&value(name)?);
            rest = after;
        }
    }
    expanded.push_str(rest);
    Some(expanded)
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn templates_expand() {
        let value = |name: &str| (name == "port").then(|| "6379".to_owned());
        assert_eq!(expand("on {port}.", value).as_deref(), Some("on 6379."));
        assert_eq!(expand("{{port} {port}", value).as_deref(), Some("{port} 6379"));
        assert_eq!(expand("{host}", value), None);
        assert_eq!(expand("{port", value), None);
        assert_eq!(expand("", value).as_deref(), Some(""));
    }
}
