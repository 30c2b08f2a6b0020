package scheduler

import (
	"fmt"
	"maps"
	"slices"
)

// KeepingError is that of a gang for which there is no room, though members of it without nodes have devices, which a
// scheduler before this one gave them: a gang that waits holds nothing.
type KeepingError struct {
	Units []*Unit
	err   error
}

func (k *KeepingError) Error() string { return k.err.Error() }

// Unwrap returns why there is no room.
func (k *KeepingError) Unwrap() error { return k.err }

// keepers are the units that have devices which can be taken away.
func keepers(units map[string]*Unit) (all []*Unit) {
	for _, key := range slices.Sorted(maps.Keys(units)) {
		if units[key].Stuck() {
			all = append(all, units[key])
		}
	}
	return all
}

// Keeping are the units of pods that wait and have devices, of gangs that cannot be planned.
func (e *Engine) Keeping() (all []*Unit) {
	for _, pod := range e.Gangs.lacking() {
		if u, err := e.Read(pod); err == nil && u.Stuck() {
			all = append(all, u)
		}
	}
	return all
}

// stayAll lets members of a gang stay where they have devices already. The error is [ErrRoom] or [ErrWait].
func (e *Engine) stayAll(units map[string]*Unit, trials Trials) error {
	for _, key := range slices.Sorted(maps.Keys(units)) {
		u := units[key]
		if err := e.Disputed(u); err != nil {
			return err
		}
		if err := e.mayShare(u); err != nil {
			return fmt.Errorf("%w: %w (pod %s)", ErrWait, err, u.Pod.Name)
		}
		if len(u.Demand.Claims()) == 0 && u.Demand.Node() != "" {
			if err := u.stay(func(node string) bool { return trials.Lets(u.Pod, node) }); err != nil {
				return fmt.Errorf("%w (pod %s)", err, u.Pod.Name)
			}
		}
	}
	return nil
}
