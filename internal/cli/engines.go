package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// engines start containers, whose processes are not in the share of who starts them: a daemon's are no children of the
// command, and none has the mounts that cover the driver. starting are their commands that do.
var (
	engines  = []string{"docker", "podman", "nerdctl", "docker-compose", "podman-compose"}
	starting = []string{"run", "create", "start", "restart", "exec", "up", "play", "kube"}
)

// tellOfContainers warns of a command whose containers would be outside the share.
func (a *app) tellOfContainers(command []string) {
	engine := filepath.Base(command[0])
	if engine == "sudo" && len(command) > 1 {
		command = command[1:]
		engine = filepath.Base(command[0])
	}
	starts := func(arg string) bool { return slices.Contains(starting, arg) }
	if !slices.Contains(engines, engine) || !slices.ContainsFunc(command[1:], starts) {
		return
	}
	if slices.ContainsFunc(command, func(arg string) bool { return strings.Contains(arg, v1alpha1.CDIKind+"=") }) {
		a.tell("containers of " + engine + " are in the share of their device, and not in this one: leave out `divvy run`")
		return
	}
	a.tell("containers of " + engine + " are outside this share: make one as root (`divvy share create NAME --memory 8Gi`) and give it to them (`" + engine + " run --device " + v1alpha1.CDIKind + "=NAME …`)")
}
