package daemon

import (
	"context"
	"path/filepath"
	"time"

	"github.com/divvy-gpu/divvy/internal/rundir"
)

// keepPlace renews a system agent's mark until ctx is done, and makes what was removed
// of its run directory again: without mark and socket nobody finds the agent, and
// everybody is told that there is none.
func (s *service) keepPlace(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var renewed time.Time
	said := ""
	for {
		err := s.mend(ctx)
		if now := time.Now(); err == nil && now.Sub(renewed) >= rundir.MarkInterval {
			if err = rundir.RenewMark(s.options.Endpoint.Dir(), now); err == nil {
				renewed = now
			}
		}
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			s.options.Log.ErrorContext(ctx, "cannot keep the run directory: users may not find this agent", "error", err)
			s.agent.NoteFault("users may not find this agent: " + said)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// mend makes the run directory, its lock, the mark and the socket again, as far as they
// are missing.
func (s *service) mend(ctx context.Context) error {
	dir := s.options.Endpoint.Dir()
	unlocked := changed(filepath.Join(dir, lockFile), s.locked)
	c, _ := rundir.ConfiguredSystem(dir)
	if !unlocked && c.Mark != nil && !s.doors.lost() {
		return nil
	}
	if err := rundir.Make(dir, rundir.Mode()); err != nil {
		return err
	}
	if unlocked {
		if err := s.lockDir(ctx, dir); err != nil {
			return err
		}
	}
	if err := s.writeMark(s.tenants); err != nil {
		return err
	}
	if s.doors.lost() {
		if err := s.listen(); err != nil {
			return err
		}
	}
	s.options.Log.WarnContext(ctx, "made again what was removed of the run directory", "dir", dir)
	return s.agent.Save()
}
