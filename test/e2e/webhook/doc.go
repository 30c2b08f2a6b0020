// Package webhook tests the webhook and the controller with a real API server: requests that only it sends, and what
// happens while the webhook is away. `make e2e` runs it, as root.
package webhook
