package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

func TestHostsFlag(t *testing.T) {
	t.Setenv(identity.Variable, t.TempDir())
	f := &hostsFlag{}
	if f.given() {
		t.Error("it was not given")
	}
	if err := f.Set("gpu1, gpu2:9000"); err != nil || !f.given() || f.String() != "gpu1,gpu2:9000" {
		t.Errorf("%v, %s", err, f)
	}
	if names, err := f.hosts(); err != nil || !slices.Equal(names, []string{"gpu1", "gpu2:9000"}) {
		t.Errorf("%q, %v", names, err)
	}
	if err := f.Set("gpu1,any"); !errors.Is(err, relay.ErrNames) || !strings.Contains(err.Error(), "name it alone") {
		t.Error(err)
	}
	if err := f.Set("any"); err != nil || !f.given() || f.String() != "any" {
		t.Errorf("%v, %s", err, f)
	}
	if names, err := f.hosts(); !errors.Is(err, identity.ErrNone) {
		t.Errorf("%q, %v", names, err)
	}
}
