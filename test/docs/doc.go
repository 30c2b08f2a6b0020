// Package docs holds the documents against the tree: what they name must exist.
package docs
