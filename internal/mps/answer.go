package mps

import (
	"fmt"
	"strconv"
	"strings"
)

// Status is what a server does.
type Status string

// The statuses, as get_server_status has them.
const (
	StatusInitializing Status = "INITIALIZING"
	StatusActive       Status = "ACTIVE"
	// StatusFault is that of a server one of whose clients made a fatal fault. It serves no new client before all that it
	// has are gone.
	StatusFault Status = "FAULT"
)

// The answers that are the same for several commands.
const (
	unknownCommand = "Unknown command "
	serverPrefix   = "Server "
	notFound       = " not found"
)

// lines are the lines of an answer without the empty ones.
func lines(answer string) []string {
	var found []string
	for line := range strings.Lines(answer) {
		if line = strings.TrimSpace(line); line != "" {
			found = append(found, line)
		}
	}
	return found
}

// refusal is the error that an answer tells of, nil for none.
func refusal(answer []string) error {
	if len(answer) == 0 {
		return nil
	}
	switch first := answer[0]; {
	case strings.HasPrefix(first, unknownCommand):
		return fmt.Errorf("%w: %s", ErrUnknownCommand, first)
	case strings.HasPrefix(first, serverPrefix) && strings.HasSuffix(first, notFound):
		return fmt.Errorf("%w: %s", ErrNoServer, first)
	}
	return nil
}

// parsePIDs reads a list of processes, one in a line.
func parsePIDs(answer []string) ([]int, error) {
	var pids []int
	for _, line := range answer {
		pid, err := strconv.Atoi(line)
		if err != nil || pid <= 0 {
			return nil, fmt.Errorf("%w: %q is no process", ErrAnswer, line)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// parsePercentage reads a percentage of a GPU's SMs.
func parsePercentage(answer []string) (float64, error) {
	if len(answer) != 1 {
		return 0, fmt.Errorf("%w: %q is no percentage", ErrAnswer, answer)
	}
	percentage, err := strconv.ParseFloat(answer[0], 64)
	if err != nil || !(percentage > 0 && percentage <= 100) {
		return 0, fmt.Errorf("%w: %q is no percentage", ErrAnswer, answer[0])
	}
	return percentage, nil
}

// printed is how the daemon tells a limit of so many MiB: in whole GiB, rounded down, from 1 GiB on.
func printed(mebibytes uint64) string {
	if mebibytes < 1<<10 {
		return fmt.Sprintf("%dM", mebibytes)
	}
	return fmt.Sprintf("%dG", mebibytes>>10)
}

// parseStatus reads what a server does.
func parseStatus(answer []string) (Status, error) {
	if len(answer) != 1 {
		return "", fmt.Errorf("%w: %q is no status", ErrAnswer, answer)
	}
	switch status := Status(answer[0]); status {
	case StatusInitializing, StatusActive, StatusFault:
		return status, nil
	}
	return "", fmt.Errorf("%w: %q is no status", ErrAnswer, answer[0])
}
