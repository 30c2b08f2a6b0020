package host

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// inNamespace is set in a process of TestIdentityWithoutAccount that is a user without an account.
const inNamespace = "DIVVY_TEST_NO_ACCOUNT"

// A server whose user has no account gives shares, which need no more of a user than a number. Commands need a home.
func TestIdentityWithoutAccount(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestIdentityWithoutAccount$")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 424242, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 424242, HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			installtest.Missing(t, "users", err)
		}
		if err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	env, attr, err := identityOf("", []string{"DIVVY_RUNDIR=/run/d"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(env, " "); !strings.Contains(got, "PATH=") || !strings.HasSuffix(got, " DIVVY_RUNDIR=/run/d") || strings.Contains(got, "HOME=") || attr.Credential != nil {
		t.Errorf("%q as %v", env, attr.Credential)
	}
	if _, err := userOf(""); !errors.Is(err, errNoAccount) || !strings.Contains(err.Error(), "424242") {
		t.Errorf("a command's user: %v", err)
	}
	if _, _, err := identityOf("no-such-user", nil); err == nil {
		t.Error("a user whom nobody knows has an identity")
	}
}
