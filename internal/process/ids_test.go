package process

import (
	"os"
	"slices"
	"testing"
)

func TestIDs(t *testing.T) {
	const status = "Name:\tUid: 7\nState:\tR\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t27 44 100 \nNStgid:\t1\n"
	uids, gids := parseIDs([]byte(status))
	if !slices.Equal(uids, []int{1, 2, 3, 4}) || !slices.Equal(gids, []int{6, 27, 44, 100}) {
		t.Errorf("users %v, groups %v", uids, gids)
	}
	if uids, gids := parseIDs([]byte("Uid:\tx\nGid:\t5\n")); len(uids)+len(gids) > 0 {
		t.Errorf("of nonsense: users %v, groups %v", uids, gids)
	}
	present, err := UsersPresent()
	if err != nil || !present[os.Getuid()] || present[1<<31-3] {
		t.Errorf("users %v, %v", present, err)
	}
	self, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if gids, err = self.Groups(); err != nil || len(gids) == 0 || gids[0] != os.Getegid() {
		t.Errorf("groups %v, %v", gids, err)
	}
	if _, err := (ID{PID: 1 << 22, Start: 1}).Groups(); err == nil {
		t.Error("groups of a process that is not there")
	}
}
