// Package docker renders edits as arguments of `docker run`, for versions that do not know CDI.
package docker

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// ErrArgument marks edits that no arguments can express.
var ErrArgument = errors.New("cannot be expressed as arguments of docker run")

// compat is where CUDA's images link to their folder of libraries for hosts with older drivers, which a hook covers
// where the runtime takes hooks. Docker follows the links of the image.
const compat = "/usr/local/cuda/compat"

// literal are the characters, beside letters and digits, that a shell neither divides nor expands, without those that divide
// Docker's own arguments.
const literal = "_-./+@%:="

// Arguments are those by which `docker run` makes the edits, one flag and value each. It is pure. A shell may divide them at
// spaces and needs no quotes.
//
// `docker run` takes no hooks. In their place it covers the folder of CUDA's images, and nothing says which cgroup is the
// container's. Docker sorts mounts itself, and its mounts have no options but `readonly`.
func Arguments(e edits.Edits) ([]string, error) {
	if len(e.Binds) > 0 {
		return nil, fmt.Errorf("%w: files of the host bound over each other", ErrArgument)
	}
	var out []string
	for _, m := range e.Mounts {
		text := "type=bind,source=" + m.Source + ",target=" + m.Target
		if slices.Contains(m.Options, "ro") {
			text += ",readonly"
		}
		out = append(out, "--mount="+text)
	}
	if slices.ContainsFunc(e.Hooks, func(h edits.Hook) bool { return !h.Outside }) {
		out = append(out, "--mount=type=tmpfs,target="+compat+",tmpfs-size=8192,tmpfs-mode=755")
	}
	for _, d := range e.Devices {
		out = append(out, "--device="+d.Source+":"+d.Path+":rw")
	}
	for _, v := range e.Env {
		if v.Prepend {
			return nil, fmt.Errorf("%w: a variable that is put before another: %s", ErrArgument, v.Name)
		}
		out = append(out, "--env="+v.Name+"="+v.Value)
	}
	return out, check(e, out)
}

// check returns an error for a value that Docker or a shell would divide.
func check(e edits.Edits, arguments []string) error {
	odd := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune(literal, r)
	}
	for _, m := range e.Mounts {
		if strings.ContainsFunc(m.Source+m.Target, odd) {
			return fmt.Errorf("%w: mount of %q at %q", ErrArgument, m.Source, m.Target)
		}
	}
	for _, d := range e.Devices {
		if strings.ContainsFunc(d.Source+d.Path, odd) || strings.Contains(d.Source+d.Path, ":") {
			return fmt.Errorf("%w: device %q at %q", ErrArgument, d.Source, d.Path)
		}
	}
	for _, a := range arguments {
		if strings.ContainsFunc(strings.ReplaceAll(a, ",", ""), odd) {
			return fmt.Errorf("%w: %q", ErrArgument, a)
		}
	}
	return nil
}
