package drivers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// Fewest is how many versions of the driver must be there.
const Fewest = 2

// The errors of what is or is not unpacked.
var (
	ErrFew  = errors.New("too few versions of NVIDIA's driver: hack/drivers.sh unpacks them")
	ErrFile = errors.New("a driver's folder has not one file of each library")
)

// Driver is one version of NVIDIA's driver, unpacked.
type Driver struct {
	// Folder has the driver's files side by side.
	Folder string
	// Version is the driver's own, such as 535.261.03, and Release that of Debian's package.
	Version, Release string
}

// Unpacked are the drivers below a folder that hack/drivers.sh filled, the oldest first.
func Unpacked(folder string) ([]Driver, error) {
	complete, err := filepath.Glob(filepath.Join(folder, "*", ".complete"))
	if err != nil {
		return nil, fmt.Errorf("look for drivers: %w", err)
	}
	if len(complete) < Fewest {
		return nil, fmt.Errorf("%w: %s has %d, want %d", ErrFew, folder, len(complete), Fewest)
	}
	var found []Driver
	for _, mark := range complete {
		at, err := filepath.Abs(filepath.Dir(mark))
		if err != nil {
			return nil, fmt.Errorf("look for drivers: %w", err)
		}
		d := Driver{Folder: at}
		file, err := d.file(driver.CUDA)
		if err != nil {
			return nil, err
		}
		release, err := os.ReadFile(filepath.Join(at, "release"))
		if err != nil {
			return nil, fmt.Errorf("read which package a driver is from: %w", err)
		}
		d.Version, d.Release = strings.TrimPrefix(filepath.Base(file), driver.CUDA.Bare()+"."), strings.TrimSpace(string(release))
		found = append(found, d)
	}
	return found, nil
}

// file is where the driver's own library lies.
func (d Driver) file(library driver.Library) (string, error) {
	found, err := filepath.Glob(filepath.Join(d.Folder, library.Bare()+".*"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%w: %s in %s: %v", ErrFile, library, d.Folder, found)
	}
	if err != nil {
		return "", fmt.Errorf("look for the driver's libraries: %w", err)
	}
	return found[0], nil
}
