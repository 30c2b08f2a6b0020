package users

import (
	"strings"
	"testing"
)

// A program that became another user in a share gets no GPU and is told why, and what it is
// told to do works.
func TestAnotherUserInAShareIsToldWhy(t *testing.T) {
	s := newServer(t)
	s.agent()
	divvy := []string{"divvy", "run", "--memory", "1Gi", "--"}
	become := []string{"setpriv", "--reuid", "u2", "--regid", "u2", "--init-groups", "--"}
	info := []string{"env", "DIVVY_LOG=stderr", "gpubench", "info"}
	with := func(parts ...[]string) (all []string) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for _, layer := range []string{"namespace", "env"} {
		o := s.run("root", with(divvy[:2], []string{"--layer", layer}, divvy[2:], become, info)...)
		const why = "the share is user 0's and this program runs as user 2002; become user 2002 first and start divvy run then"
		if o.status != 1 || !strings.Contains(o.out, "CUDA_ERROR_SYSTEM_NOT_READY") || !strings.Contains(o.err, why) {
			t.Errorf("%s: %+v", layer, o)
		}
	}
	s.asRoot(with(become, divvy, info)...)
}
