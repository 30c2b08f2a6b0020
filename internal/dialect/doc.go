// Package dialect turns what a pod asks in the plain form, or in the words of another system, into claims that the
// cluster's driver for divvy.dev allocates: [Translator.Translate] goes from a pod and an inventory to a patch and
// claim templates, or to a refusal of one line.
//
// It is pure: no server, no client, no clock. The same pod, configuration and inventory give the same bytes, a patched
// pod is left as it is, and a request that cannot be honoured is refused, never granted wider.
//
// Where queues are served it also says which queue a pod may name, and keeps the name that a pod has in a dialect.
//
// A dialect is one file with a function from its options to a [Dialect], and a row in the table dialects (config.go).
package dialect
