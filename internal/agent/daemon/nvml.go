package daemon

import (
	"path/filepath"
	"time"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
)

// openNVML lets helpers open the driver's library.
func (s *service) openNVML(found *driver.Driver) (*helper.Driver, error) {
	program, err := s.options.Tree.Divvy()
	if err != nil {
		return nil, err
	}
	library, err := helper.Open(helper.Config{
		Start: helper.Start(program, HelperCommand), Library: nvmlOf(found, s.options.simgpu()), Memory: filepath.Join(s.options.Endpoint.Dir(), "gpus.json"),
		Limits: helper.Usual, Log: s.options.Log, Now: time.Now, LetGo: s.rest,
	})
	if err != nil {
		return nil, err
	}
	s.closers, s.library = append(s.closers, library.Close), library
	return library, nil
}

// HelperCommand is the argument with which divvy becomes a helper, see package helper.
const HelperCommand = "nvml-helper"
