package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
)

// driverInterval is the time between two looks for a driver on a machine without one. Nobody gives notice of its installation.
const driverInterval = 30 * time.Second

// openDriver finds the driver and lets helpers open it. An agent for virtual machines alone has none, and one that can do without
// may have none: nil is returned then.
func (s *service) openDriver(ctx context.Context) (*driver.Driver, error) {
	if s.options.MachinesOnly {
		s.library = helper.None()
		return nil, nil
	}
	finder, found, err := s.options.findDriver(ctx)
	s.finder = finder
	if s.driverless = s.options.Driverless && errors.Is(err, driver.ErrNotFound); s.driverless {
		s.options.Log.InfoContext(ctx, "serves no GPU of this machine until a driver is found", "error", err)
		s.library = helper.None()
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = s.openNVML(found)
	return found, err
}

// awaitDriver ends an agent without a driver when there is one, so that it starts again and serves its GPUs.
func (s *service) awaitDriver(ctx context.Context) {
	ticker := time.NewTicker(driverInterval)
	defer ticker.Stop()
	looks := ticker.C
	if s.options.looks != nil {
		looks = s.options.looks
	}
	for {
		select {
		case <-looks:
		case <-ctx.Done():
			return
		}
		if _, err := s.finder.Find(); err == nil && s.startAgain(ctx, nil, "to serve the GPUs of a driver that was installed") {
			return
		}
	}
}
