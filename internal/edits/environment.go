package edits

import (
	"slices"
	"strings"
)

// Environment renders the edits of variables: env as it is then. A variable
// that is edited appears once, where it first was, or else at the end.
func (e Edits) Environment(env []string) []string {
	out := slices.Clone(env)
	for _, edit := range e.Env {
		out = edit.apply(out)
	}
	return out
}

func (e Env) apply(env []string) []string {
	named := func(entry string) bool { return strings.HasPrefix(entry, e.Name+"=") }
	at := slices.IndexFunc(env, named)
	if at < 0 {
		return append(env, e.Name+"="+e.Value)
	}
	// Of several entries of one name, getenv(3) answers with the first.
	old := strings.TrimPrefix(env[at], e.Name+"=")
	value := e.Value
	if e.Prepend && old != "" {
		value += ":" + old
	}
	rest := slices.DeleteFunc(slices.Clone(env[at+1:]), named)
	return append(append(env[:at:at], e.Name+"="+value), rest...)
}
