// Package docs checks that what the documents name exists.
package docs
