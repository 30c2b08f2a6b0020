package edits

import (
	"slices"
	"strings"
)

// defaultPath is where execvp(3) looks without a PATH: a folder put before it must not take these away.
const defaultPath = "/bin:/usr/bin"

// Environment returns env with the edits of variables applied. An edited variable
// appears once, in its first position in env, or at the end.
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
		value := e.Value
		if e.Prepend && e.Name == "PATH" {
			value += ":" + defaultPath
		}
		return append(env, e.Name+"="+value)
	}
	// Of several entries with one name, getenv(3) returns the first.
	old := strings.TrimPrefix(env[at], e.Name+"=")
	value := e.Value
	if e.Prepend && old != "" {
		value += ":" + old
	}
	rest := slices.DeleteFunc(slices.Clone(env[at+1:]), named)
	return append(append(env[:at:at], e.Name+"="+value), rest...)
}
