//! The URL of a published table, and the object store that it names.
//!
//! In: a URL, and the store's standard environment variables. Out: an object store, and the paths of a table's objects.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use super::bounded_http::{BoundedConnector, Busy, Redirects};
use super::error::{PublishError, StoreFault};
use super::local_store::LocalStore;
use crate::folder::Folder;

/// The maximum number of retries of a request that the crate `object_store` makes, and their maximum time. Callers
/// retry later.
const RETRIES_MAX: usize = 4;
const RETRY_TIME_MAX: Duration = Duration::from_secs(30);

/// A table's place in an object store.
#[derive(Clone)]
pub(super) struct Location {
    /// The URL without a trailing slash and without credentials.
    url: String,
    prefix: Path,
    pub(super) store: Arc<dyn ObjectStore>,
    /// The store as one whose uploads can be resumed. `None` if it is a local folder or a plain HTTP server.
    pub(super) multipart: Option<Arc<dyn MultipartStore>>,
    /// The store as one that is listed in pages. `None` if it is a local folder or a plain HTTP server.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// The store, if it is a folder of this machine.
    pub(super) folder: Option<LocalStore>,
    /// Whether the store can be written and listed. Plain HTTP servers can only be read.
    pub(super) is_writable: bool,
    /// The pause that the store has asked for.
    pub(super) busy: Arc<Busy>,
}

impl Location {
    /// Parses a URL, and creates its folder if it names a local folder that does not exist. Environment variables whose
    /// names have a prefix replace those without it.
    pub(super) fn create(text: &str, variables_prefix: &str) -> Result<Location, PublishError> {
        // Any other text is rejected below.
        if let Some(folder) = text.strip_prefix("file://").filter(|folder| folder.starts_with('/')) {
            Folder::create_all(folder.as_ref()).map_err(PublishError::io(folder.as_ref()))?;
        }
        Location::parse_with(text, variables_prefix)
    }

    /// Parses a URL. Sends no request to the store.
    pub(super) fn parse(text: &str) -> Result<Location, PublishError> {
        Location::parse_with(text, "")
    }

    fn parse_with(text: &str, variables_prefix: &str) -> Result<Location, PublishError> {
        let refused = |problem: String| PublishError::Url { url: text.to_owned(), problem };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            refused(
                "expected s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH, file:///PATH, or https://HOST/PATH"
                    .into(),
            )
        })?;
        let rest = rest.trim_end_matches('/');
        if rest.contains(['?', '#', '@']) {
            return Err(refused(
                "has `?`, `#`, or `@`: remove it, and pass credentials in environment variables".to_owned(),
            ));
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() != (scheme == "file") || (scheme != "http" && scheme != "https" && path.is_empty()) {
            return Err(refused(
                "names no table: expected a URL such as s3://tables/users or file:///srv/tables/users".to_owned(),
            ));
        }
        install_crypto_provider();
        let invalid = |error: object_store::Error| refused(StoreFault::new(&error).to_string());
        let parse_path = |path: &str| Path::parse(path).map_err(|error| refused(error.to_string()));
        let url = format!("{scheme}://{rest}");
        let (client, retry, busy) = (client_options(), retry_config(), Arc::<Busy>::default());
        let read_only = |store: Arc<dyn ObjectStore>, prefix| Location {
            url: url.clone(),
            prefix,
            store,
            multipart: None,
            pages: None,
            folder: None,
            is_writable: false,
            busy: Arc::clone(&busy),
        };
        let connector = |redirects| BoundedConnector { redirects, busy: Arc::clone(&busy) };
        // The builders have the same methods, but no common trait.
        macro_rules! cloud {
            ($builder:ident, $variables:literal, $with_bucket:ident) => {{
                let mut builder = $builder::from_env();
                for (name, value) in variables(variables_prefix, $variables) {
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let builder = builder.$with_bucket(host).with_client_options(client).with_retry(retry);
                let store = builder.with_http_connector(connector(Redirects::SameHost)).build().map_err(invalid)?;
                let store = Arc::new(store);
                read_only(Arc::clone(&store) as _, parse_path(path)?).of_service(store)
            }};
        }
        match scheme {
            "s3" => Ok(cloud!(AmazonS3Builder, "AWS_", with_bucket_name)),
            "gs" => Ok(cloud!(GoogleCloudStorageBuilder, "GOOGLE_", with_bucket_name)),
            "az" => Ok(cloud!(MicrosoftAzureBuilder, "AZURE_", with_container_name)),
            "file" => {
                // The folder is the root of the store, so that nothing outside it can be read or written.
                let store = LocalStore::new(PathBuf::from(format!("/{path}")));
                let folder = Some(store.clone());
                Ok(Location { folder, is_writable: true, ..read_only(Arc::new(store), Path::default()) })
            }
            "http" | "https" => {
                let builder = HttpBuilder::new().with_url(format!("{scheme}://{host}")).with_client_options(client);
                let builder = builder.with_retry(retry).with_http_connector(connector(Redirects::Anywhere));
                let store = builder.build().map_err(invalid)?;
                Ok(read_only(Arc::new(store), parse_path(path)?))
            }
            _ => Err(refused(format!("the scheme is {scheme:?}, expected s3, gs, az, file, http, or https"))),
        }
    }

    /// Adds what the services of clouds can do.
    fn of_service<S: MultipartStore + PaginatedListStore>(self, store: Arc<S>) -> Location {
        Location { multipart: Some(Arc::clone(&store) as _), pages: Some(store), is_writable: true, ..self }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn is_local(&self) -> bool {
        self.folder.is_some()
    }

    /// Checks that the folder of a node and a folder that is the store are not inside each other. Both have subfolders
    /// of the same names, in which the node deletes what it does not need.
    pub(super) fn check_cache(&self, cache: &std::path::Path) -> Result<(), PublishError> {
        let Some(store) = &self.folder else { return Ok(()) };
        let (store, real) = (real_path(store.path()), real_path(cache));
        if !store.starts_with(&real) && !real.starts_with(&store) {
            return Ok(());
        }
        let problem = format!("overlaps the store in {}: choose another folder for the cache", store.display());
        Err(PublishError::Io { path: cache.to_path_buf(), error: std::io::Error::other(problem) })
    }

    /// Returns the last component of the URL, which is the table's name.
    pub(super) fn table(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn path(&self, object: &str) -> Path {
        object.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    pub(super) fn object_url(&self, object: &str) -> String {
        format!("{}/{object}", self.url)
    }

    /// Returns a function that converts an error of the store into a [`PublishError::Store`] for an object.
    pub(super) fn fault(&self, object: &str) -> impl Fn(object_store::Error) -> PublishError {
        let object = self.object_url(object);
        move |error| PublishError::Store { object: object.clone(), cause: StoreFault::new(&error) }
    }

    /// Returns the error for a document, or for a folder of documents, that is not as expected.
    pub(super) fn document_fault(&self, object: &str, problem: impl Into<String>) -> PublishError {
        PublishError::Document { object: self.object_url(object), problem: problem.into() }
    }

    /// Rejects a table in a store that can only be read.
    pub(super) fn check_writable(&self) -> Result<(), PublishError> {
        if self.is_writable {
            return Ok(());
        }
        let problem =
            "http and https URLs can only be read: name the store itself, such as s3://BUCKET/PATH".to_owned();
        Err(PublishError::Url { url: self.url.clone(), problem })
    }
}

/// Returns a path without links, as far as it exists.
fn real_path(path: &std::path::Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let real = |existing: &std::path::Path| {
        let rest = path.strip_prefix(existing).ok()?;
        existing.canonicalize().ok().map(|real| real.join(rest))
    };
    path.ancestors().find_map(real).unwrap_or_else(|| path.clone())
}

/// Returns the environment variables of a store whose names have a prefix, with their names in lowercase and without
/// it. Returns none for the empty prefix, because the crate `object_store` reads the variables without a prefix.
fn variables(prefix: &str, store: &str) -> Vec<(String, String)> {
    let of_store = |(name, value): (OsString, OsString)| {
        let name = name.to_str()?.strip_prefix(prefix).filter(|name| name.starts_with(store))?.to_ascii_lowercase();
        Some((name, value.into_string().ok()?))
    };
    if prefix.is_empty() { Vec::new() } else { std::env::vars_os().filter_map(of_store).collect() }
}

/// Selects the provider of cryptography for TLS connections of this process, unless the program has selected one.
fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn client_options() -> ClientOptions {
    // An endpoint with TLS is the default. The user may name one without TLS, for example a server on this machine.
    // `BoundedConnector` sets all time limits.
    ClientOptions::new().with_allow_http(true)
}

fn retry_config() -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(5), base: 2.0 };
    RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_TIME_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_url_is_rejected_with_the_expected_form() {
        for (url, expected) in [
            ("users", "s3://BUCKET/PATH"),
            ("ftp://host/users", "expected s3, gs, az, file, http, or https"),
            ("s3://bucket", "names no table"),
            ("s3:///users", "names no table"),
            ("file://host/users", "names no table"),
            ("s3://key:secret@bucket/users", "environment variables"),
            ("http://host/a?b", "remove it"),
        ] {
            let error = Location::parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(url) && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_malformed_url_creates_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let relative = folder.path().strip_prefix("/").unwrap().join("users");
        assert!(Location::create(&format!("file://{}", relative.display()), "").is_err());
        assert!(!relative.exists(), "{}", relative.display());
        Location::create(&format!("file:///{}", relative.display()), "").unwrap();
        assert!(folder.path().join("users").is_dir());
    }

    #[test]
    fn paths_of_objects_are_below_the_url() {
        let location = Location::parse("http://host/a/users/").unwrap();
        assert_eq!(location.path("pins/1.json").as_ref(), "a/users/pins/1.json");
        assert_eq!(location.object_url("pins/1.json"), "http://host/a/users/pins/1.json");
        assert_eq!(location.table(), "users");
        assert!(location.check_writable().is_err());
    }
}
