// Package webhook tries the webhook and the controller against a real API server: what only that sends,
// and what happens when the server is away. As root, by `make e2e`.
package webhook
