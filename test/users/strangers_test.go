package users

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/page"
)

// squat takes the names of the GPUs that it is given and answers nobody.
const squat = `
import socket, sys
kept = []
for uuid in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0divvy/gpu/" + uuid)
    s.listen(1)
    kept.append(s)
print("taken", flush=True)
sys.stdin.read()
`

// Who takes the names of all GPUs and is no agent keeps users' own agents away, and is
// named; the system agent serves all the same, and goes on as soon as it can.
func TestSquatter(t *testing.T) {
	s := newServer(t)
	uuids := s.uuids()
	if len(uuids) != 8 {
		t.Fatalf("GPUs %v", uuids)
	}
	squatter := s.start("u6", true, append([]string{"python3", "-c", squat}, uuids...)...)
	// Its process is named while it has room for callers, its user also afterwards.
	s.refused("u1", []string{"GPU 3 ", "user u6"}, "divvy", "run", "--gpu", "3", "--memory", "1Gi", "--", "true")
	s.agent()
	s.ok("u1", "divvy", "run", "--gpu", "3", "--memory", "1Gi", "--", "gpubench", "info")
	if o := s.run("root", "divvy", "doctor"); strings.Count(o.out, "warn  GPU held: GPU ") != 8 || !strings.Contains(o.out, "by the agent of user u6") {
		t.Errorf("doctor says\n%s", o.out)
	}
	squatter.end()
	s.eventually("the system agent has all names", func() bool {
		return !strings.Contains(s.run("root", "divvy", "doctor").out, "GPU held")
	})
}

// mute takes the names of GPUs as one process for each, takes every connection, answers
// nothing, and writes to a file how often it was asked something.
const mute = `
import os, socket, sys
def hold(uuid):
    for file in 0, 1, 2: # the test waits for all who have them
        os.close(file)
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0divvy/gpu/" + uuid)
    s.listen(64)
    os.write(ready, b".")
    kept = []
    while True:
        c, _ = s.accept()
        kept.append(c)
        if os.fork() == 0:
            if c.recv(1):
                os.write(asked, b".")
            os._exit(0)
told, ready = os.pipe()
asked = os.open("asked", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for uuid in sys.argv[1:]:
    if os.fork() == 0:
        hold(uuid)
taken = b""
while len(taken) < len(sys.argv) - 1:
    taken += os.read(told, 1)
print("taken", flush=True)
sys.stdin.read()
`

// A user who holds the names of all GPUs by as many processes that answer nobody is waited
// for once, and not for each.
func TestOneUserIsWaitedForOnce(t *testing.T) {
	s := newServer(t)
	s.start("u6", true, append([]string{"python3", "-c", mute}, s.uuids()...)...)
	begun := time.Now()
	s.agent()
	asked, err := os.ReadFile(filepath.Join(s.Root, "home/u6/asked"))
	most := 3 + int(time.Since(begun)/(5*time.Second)) // it asks again every five seconds
	if err != nil || len(asked) == 0 || len(asked) > most {
		t.Errorf("they were asked %d times, %v", len(asked), err)
	}
	s.ok("u1", "divvy", "run", "--gpu", "3", "--memory", "1Gi", "--", "gpubench", "info")
}

// copies makes very many directories like a tenant's, each with a record of a mebibyte.
const copies = `
import os, shutil, sys
source, place = sys.argv[1:3]
os.makedirs(place, mode=0o700)
for i in range(int(sys.argv[3])):
    path = "%s/%08x" % (place, i)
    os.mkdir(path, 0o700)
    for name in "config", "state":
        with open(source + "/" + name, "rb") as old, open(path + "/" + name, "wb") as new:
            new.write(old.read(9000)) # the rest is a hole
            new.truncate(os.stat(source + "/" + name).st_size)
        os.chmod(path + "/" + name, 0o600)
    with open(path + "/record", "wb") as file:
        file.truncate(1 << 20)
`

// Very many directories that look like tenants' take no more of the agent's memory than a
// bounded part of what they hold.
func TestVeryManyStrangers(t *testing.T) {
	s := newServer(t)
	p := s.start("u6", true, "divvy", "run", "--gpu", "0", "--memory", "1Gi", "--", "sh", "-c", "echo; cat")
	made, err := filepath.Glob(s.Root + "/dev/shm/divvy-2006/tenants/*")
	if err != nil || len(made) != 1 {
		t.Fatalf("%v, %v", made, err)
	}
	const many = 400
	s.ok("u6", "python3", "-c", copies, strings.TrimPrefix(made[0], s.Root), "/var/tmp/divvy-2006/tenants", strconv.Itoa(many))
	agent := s.agent()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(agent.pid()) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if kib, err := strconv.Atoi(strings.Fields(rest)[0]); err != nil || kib > many<<10/2 {
		t.Errorf("the agent had %d KiB, %v", kib, err)
	}
	if list := s.list(); len(list.Tenants) != 1 || list.Tenants[0].User != "u6" {
		t.Errorf("taken over are %+v", list.Tenants)
	}
	p.end()
}

// An own agent that says that its shares are elsewhere leads nobody anywhere.
const liar = `
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind("\0divvy/gpu/" + sys.argv[1])
s.listen(8)
print("taken", flush=True)
while True:
    c, _ = s.accept()
    f = c.makefile("rw")
    for line in f:
        q = json.loads(line)
        result = {"protocol": 2, "ephemeral": True} if q["method"] == "hello" else {"tenants": sys.argv[2]}
        f.write(json.dumps({"id": q["id"], "result": result}) + "\n")
        f.flush()
`

func TestLiar(t *testing.T) {
	s := newServer(t)
	uuids := s.uuids()
	victim := s.hold("u1", "1Gi", "--gpu", "0", "--memory", "4Gi", "--name", "train")
	for i, lie := range []string{"/dev/shm/divvy-2001/tenants", "/etc", "relative", "/dev/shm/divvy-2006/../divvy-2001/tenants", "/dev/shm/link/tenants"} {
		s.ok("u6", "ln", "-sfn", "/dev/shm/divvy-2001", "/dev/shm/link")
		s.start("u6", true, "python3", "-c", liar, uuids[i+1], lie)
	}
	s.agent()
	list := s.list()
	if len(list.Tenants) != 1 || list.Tenants[0].User != "u1" || list.Tenants[0].Shares[0].Limit != 4*gib {
		t.Errorf("taken over are %+v", list.Tenants)
	}
	victim.end()
	s.eventually("the share has ended", func() bool { return len(s.list().Tenants) == 0 })
}

// The user of a share that was taken over can change what its programs read, and is
// reported when these have more than the system agent's record says.
func TestCooperativeShareIsJudgedByTheRecord(t *testing.T) {
	s := newServer(t)
	p := s.start("u1", true, "divvy", "run", "--gpu", "0", "--memory", "4Gi", "--name", "train", "--",
		"sh", "-c", "echo; read x; exec gpubench hold --bytes 12Gi")
	s.agent()
	pages, err := filepath.Glob(s.Root + "/dev/shm/divvy-2001/tenants/*/config")
	if err != nil || len(pages) != 1 {
		t.Fatalf("%v, %v", pages, err)
	}
	if err := page.UpdateConfig(pages[0], func(c *page.Config) { c.Device[0].Limit = 20 * gib }); err != nil {
		t.Fatal(err)
	}
	if _, err := p.input.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is reported", func() bool {
		tenant, ok := find(s.list(), "u1", "train")
		if !ok || tenant.Shares[0].Limit != 4*gib {
			t.Fatalf("the record says %+v", tenant)
		}
		return strings.Contains(s.run("u1", "divvy", "ls").out, "by the driver's figures, and it was granted 4Gi")
	})
}
