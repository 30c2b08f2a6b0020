package process

import "testing"

func TestFileSystemIn(t *testing.T) {
	const table = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:41 / /home rw shared:2 master:1 - nfs4 files:/home rw,vers=4.2
24 22 0:42 / /my\040data rw - fuse.sshfs me@files:/my\040data rw
25 23 8:2 / /home/local rw - xfs /dev/sdb1 rw
26 23 8:3 / /home/local rw - btrfs /dev/sdc1 rw
27 22 0:50 / /broken rw
`
	tests := []struct {
		path string
		want FileSystem
	}{
		{"/", FileSystem{"ext4", "/dev/sda1"}},
		{"/home", FileSystem{"nfs4", "files:/home"}},
		{"/home/ada/x", FileSystem{"nfs4", "files:/home"}},
		{"/homes", FileSystem{"ext4", "/dev/sda1"}},
		{"/my data/x", FileSystem{"fuse.sshfs", "me@files:/my data"}},
		{"/home/local/x", FileSystem{"btrfs", "/dev/sdc1"}},
		{"/broken", FileSystem{"ext4", "/dev/sda1"}},
	}
	for _, test := range tests {
		if got, ok := fileSystemIn([]byte(table), test.path); !ok || got != test.want {
			t.Errorf("%s: %+v, %v", test.path, got, ok)
		}
	}
	if got, ok := fileSystemIn(nil, "/"); ok {
		t.Errorf("a table without mounts: %+v", got)
	}
}
