package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// mostStatus is more than /proc/PID/status has before and with the line of groups, of which Linux allows 65,536.
const mostStatus = 1 << 20

// Groups are those of a living process: its effective one and the supplementary ones.
func (id ID) Groups() ([]int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id.PID))
	if err == nil && !id.Alive() { // the file was another process's
		err = ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("read the groups of process %d: %w", id.PID, err)
	}
	_, gids := parseIDs(status[:min(len(status), mostStatus)])
	return gids, nil
}

// UsersPresent are all users that any process is or may become again: by its real, effective, saved or file system's id.
func UsersPresent() (map[int]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	present := map[int]bool{}
	var data [statusSize]byte
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		status, err := beginningOf(pid, "status", data[:])
		if err != nil {
			continue // it ended meanwhile
		}
		uids, _ := parseIDs(status)
		for _, uid := range uids {
			present[uid] = true
		}
	}
	return present, nil
}

// parseIDs reads the lines Uid, Gid and Groups of /proc/PID/status (proc_pid_status(5)). Of the groups that are one for each
// purpose it takes the effective one, the second.
func parseIDs(status []byte) (uids, gids []int) {
	for line := range bytes.Lines(status) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		var numbers []int
		for _, field := range bytes.Fields(rest) {
			number, err := strconv.ParseUint(string(field), 10, 32)
			if err != nil {
				break
			}
			numbers = append(numbers, int(number))
		}
		switch string(name) {
		case "Uid":
			uids = numbers
		case "Gid":
			if len(numbers) > 1 {
				gids = append(gids, numbers[1])
			}
		case "Groups":
			gids = append(gids, numbers...)
		}
	}
	return uids, gids
}
