package host

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/remote/command"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// Environment is what of an environment the processes have that a host starts: where Divvy is and keeps its state.
func Environment(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name != install.Variable && name != rundir.Variable
	})
}

// identityOf is the environment of a local user's process, and what makes it that user's. An empty name is this process's user,
// who may have no account.
func identityOf(name string, env []string) ([]string, *syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setsid: true}
	u, err := userOf(name)
	if errors.Is(err, errNoAccount) {
		return append([]string{"PATH=" + command.HostPath}, env...), attr, nil
	}
	if err != nil {
		return nil, nil, err
	}
	env = append([]string{"PATH=" + command.HostPath, "HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name}, env...)
	if u.UID != os.Getuid() {
		attr.Credential = u.Credential()
	}
	return env, attr, nil
}
