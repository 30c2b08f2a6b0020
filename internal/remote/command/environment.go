package command

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// passed are the variables that a client passes without being told to, and that every host lets: what decides which programs
// and which language a command has. Names may end with a star.
var passed = []string{"PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "COLORTERM", "NO_COLOR", "VIRTUAL_ENV", "CONDA_*", "PYTHON*", "OMP_*"}

// kept are variables of the host that no client sets: they say who and where the command is.
var kept = []string{"HOME", "USER", "LOGNAME", "SHELL", "XDG_*", "DIVVY_*", "DBUS_*", "SSH_*", "CUDA_VISIBLE_DEVICES"}

// Pass returns the variables of env that a client passes: the usual ones, and those that asked names, as NAME, PREFIX* or
// NAME=value.
func Pass(env, asked []string) ([]string, error) {
	patterns := slices.Clone(passed)
	var set []string
	for _, one := range asked {
		name, _, valued := strings.Cut(one, "=")
		if name == "" || strings.ContainsAny(strings.TrimSuffix(name, "*"), "*?[]\\\x00") || valued && strings.HasSuffix(name, "*") {
			return nil, fmt.Errorf("variable %q: give NAME, PREFIX* or NAME=VALUE", one)
		}
		if matches(kept, name) {
			return nil, fmt.Errorf("variable %s: the other host sets it", name)
		}
		if valued {
			set = append(set, one)
		} else {
			patterns = append(patterns, name)
		}
	}
	var found []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if matches(patterns, name) && !matches(kept, name) && !has(set, name) {
			found = append(found, entry)
		}
	}
	return append(found, set...), nil
}

// Accept returns the variables that a host lets a command have, and the names of those that it does not. Patterns let more than
// the usual ones.
func Accept(env, patterns []string) (accepted, dropped []string) {
	for _, entry := range env {
		name, _, valued := strings.Cut(entry, "=")
		if !valued || name == "" || matches(kept, name) || !matches(passed, name) && !matches(patterns, name) {
			dropped = append(dropped, name)
			continue
		}
		accepted = append(accepted, entry)
	}
	return accepted, dropped
}

// User is a local user.
type User struct {
	Name, Home string
	UID, GID   int
	Groups     []int
}

// Credential has a process become the user, which only root can.
func (u User) Credential() *syscall.Credential {
	groups := make([]uint32, 0, len(u.Groups))
	for _, g := range u.Groups {
		groups = append(groups, uint32(g))
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID), Groups: groups}
}

// HostPath is where programs are, unless the client says otherwise.
const HostPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is that of a user's command, with what the client passes.
func (u User) environment(accepted []string, term string) []string {
	env := []string{"HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name, "SHELL=/bin/sh"}
	if runtime := fmt.Sprintf("/run/user/%d", u.UID); isDirectory(runtime) {
		env = append(env, "XDG_RUNTIME_DIR="+runtime)
	}
	if !has(accepted, "PATH") {
		env = append(env, "PATH="+HostPath)
	}
	if term != "" {
		env = append(env, "TERM="+term)
	}
	return append(env, accepted...)
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// has reports whether a list of variables has one with a name.
func has(env []string, name string) bool {
	return slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

// matches reports whether a name is one of some, which may end with a star.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}
