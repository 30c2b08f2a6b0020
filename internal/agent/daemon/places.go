package daemon

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// tenantsDir makes the directory of the tenants' directories: in /dev/shm or, where
// nothing there may be executed, elsewhere. A system agent's mark names it.
func (s *service) tenantsDir() (string, error) {
	candidates := []string{rundir.Tenants()}
	if os.Getenv(rundir.Variable) == "" {
		candidates = append(candidates, filepath.Join(rundir.Path(), "tenants"))
		candidates = append(candidates, rundir.TenantsOf(os.Getuid())[1:]...)
	}
	dir, err := firstPlace(candidates)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil || !s.options.shared() {
		return dir, err
	}
	return dir, s.mark(dir)
}

// firstPlace makes the first of the candidates that can serve, and those before it.
func firstPlace(candidates []string) (string, error) {
	var faults []error
	for _, dir := range candidates {
		err := rundir.MakeBelow(dir, rundir.Mode())
		if err == nil {
			if dir, err = slice.ChoosePlace([]string{dir}); err == nil {
				return dir, nil
			}
		}
		faults = append(faults, err)
	}
	return "", errors.Join(faults...)
}
