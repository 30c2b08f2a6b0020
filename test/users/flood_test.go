package users

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// flood asks an agent as much as one user can, from 200 connections of five kinds, and
// writes to a file how many lists it got. It ends with its input.
const flood = `
import json, os, select, socket, sys
def line(method, **params):
    return (json.dumps({"id": 1, "method": method, "params": params}) if params else json.dumps({"id": 1, "method": method})).encode() + b"\n"
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/divvy/agent.sock")
    return s
idle = [connect() for _ in range(40)]
half = [connect() for _ in range(40)]
for s in half:
    s.setblocking(False)
    s.send(b'{"id":1,"method":"list","params":"' + b"x" * 100000)
waits = [connect() for _ in range(40)]
for s in waits:
    s.send(line("create", request={"memory": "23Gi", "gpus": 1, "among": ["7"]}, layer="env", wait=True))
deaf, asks = [connect() for _ in range(40)], [connect() for _ in range(40)]
for s in deaf + asks:
    s.setblocking(False)
for s in deaf:
    s.send(line("list") * 10)
for s in asks:
    s.send(line("list"))
lists = 0
print("begun", flush=True)
while True:
    able, _, _ = select.select(asks + [sys.stdin], [], [])
    for s in able:
        if s is sys.stdin:
            sys.exit()
        try:
            data = s.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            asks.remove(s)
            continue
        if data.endswith(b"\n"):
            lists += 1
            s.send(line("list"))
            open("count.new", "w").write(str(lists))
            os.rename("count.new", "count")
`

// While one user asks the agent as much as they can, in every way, all others are
// answered, and what the agent keeps for that user is bounded.
func TestOneUserFloodsTheAgent(t *testing.T) {
	s := newServer(t)
	agent := s.agent()
	held := s.hold("u2", "1Gi", "--memory", "20Gi", "--gpu", "7", "--name", "service")
	hostile := s.start("u6", true, "python3", "-c", flood)
	lists := func() int {
		text, _ := os.ReadFile(filepath.Join(s.Root, "home/u6/count"))
		n, _ := strconv.Atoi(string(text))
		return n
	}
	goesOn := func() {
		t.Helper()
		before := lists()
		s.eventually("the flood goes on", func() bool { return lists() > before+10 })
	}
	goesOn()
	s.eventually("its requests wait", func() bool { return len(s.list().Waiting) > 0 })
	for range 3 {
		s.ok("u1", "divvy", "run", "--memory", "1Gi", "--gpu", "3", "--", "gpubench", "info")
		goesOn()
		train := s.hold("u1", "1Gi", "--memory", "8Gi", "--name", "train")
		if out := s.ok("u1", "divvy", "ls"); !strings.Contains(out, "train") || !strings.Contains(out, "service") {
			t.Errorf("ls says\n%s", out)
		}
		s.ok("u1", "divvy", "set", "train", "--memory", "12Gi")
		s.ok("u1", "divvy", "stop", "train")
		train.wait()
		s.ok("root", "divvy", "ls")
		goesOn()
	}
	files, err := os.ReadDir("/proc/" + strconv.Itoa(agent.pid()) + "/fd")
	if err != nil || len(files) > 400 {
		t.Errorf("the agent has %d files open, %v", len(files), err)
	}
	hostile.end()
	s.eventually("nobody waits any more", func() bool { return len(s.list().Waiting) == 0 })
	held.end()
}
