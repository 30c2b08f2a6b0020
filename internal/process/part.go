package process

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// identity tells files apart: device nodes by kind and number, all others by where they lie.
type identity struct {
	kind uint16
	file File
}

// identify tells which file is at a path, and where it lies. Nothing is asked of who serves the file system: one whose server is
// gone would not answer.
func identify(path string) (id identity, at File, err error) {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE|unix.STATX_INO, &stat); err != nil {
		return id, at, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	at = File{Major: stat.Dev_major, Minor: stat.Dev_minor, Inode: stat.Ino}
	switch kind := stat.Mode & unix.S_IFMT; kind {
	case unix.S_IFCHR, unix.S_IFBLK:
		return identity{kind, File{Major: stat.Rdev_major, Minor: stat.Rdev_minor}}, at, nil
	}
	return identity{file: at}, at, nil
}

// lookAt is the step of a look: a process that has little is looked through in one.
func (l *look) lookAt(p *part) (cost int, more bool) {
	for more = true; more && cost < chunk && !l.isOver(); {
		var stage int
		stage, more = l.lookOn(p)
		cost += stage
	}
	return cost, more
}

// lookOn looks at the next stage, or a part of it.
func (l *look) lookOn(p *part) (cost int, more bool) {
	const visit = 16 // what a process costs in descriptors
	switch p.what {
	case descriptors:
		cost = l.descriptors(p)
	case mappings:
		if !p.mapped {
			cost = l.mappings(p)
		}
		p.mapped, p.what = p.mapped || cost > 0, threads
	case threads:
		if p.from = 0; len(p.others) == 0 && !strings.Contains(p.dir, "/task/") {
			p.others, cost = l.apart(p.id.PID)
		}
		if len(p.others) == 0 {
			return cost + visit, false
		}
		p.dir, p.others, p.what = "/proc/"+strconv.Itoa(p.id.PID)+"/task/"+p.others[0], p.others[1:], descriptors
	}
	return cost + visit, true
}

// descriptors looks at the next ones, in the order of their numbers.
func (l *look) descriptors(p *part) (cost int) {
	names, err := numbers(p.dir+"/fd", p.from)
	l.note(p.id, err)
	var has grip
	for _, name := range names {
		if l.isOver() {
			break
		}
		path := p.dir + "/fd/" + name
		target, err := os.Readlink(path)
		if err != nil {
			continue // it is closed
		}
		has.device = has.device || target == vfioDevice
		has.group = has.group || strings.HasPrefix(target, vfioNodes)
		if strings.HasPrefix(target, "/") {
			l.compare(p.id, path, target, File{})
		}
	}
	l.grips(p.id, has)
	if len(names) == 0 {
		p.what = mappings
		return cost
	}
	last, err := strconv.Atoi(names[len(names)-1])
	if p.from = last + 1; err != nil {
		p.what = mappings
	}
	return len(names)
}

const (
	// vfioDevice is what a descriptor of a device of VFIO is called, which does not tell the device.
	vfioDevice = "anon_inode:[vfio-device]"
	vfioNodes  = "/dev/vfio/"
)

// note notes that a process may not be looked at.
func (l *look) note(id ID, err error) {
	if errors.Is(err, fs.ErrPermission) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closed[id] = true
	}
}

// numbers are the next descriptors in a process's folder. The kernel lists them in their order, and from any on.
func numbers(folder string, from int) ([]string, error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	const before = 2 // . and ..
	if from > 0 {
		if _, err := dir.Seek(int64(from+before), 0); err != nil {
			return nil, err
		}
	}
	names, _ := dir.Readdirnames(chunk) // those that were read count
	return names, nil
}

// grips notes what of VFIO a process has open.
func (l *look) grips(id ID, has grip) {
	if has == (grip{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.vfio[id]
	l.vfio[id] = grip{before.device || has.device, before.group || has.group}
}

// compare notes a process if what it has is wanted. Path leads to the file, target is its name there, and at where it lies if that
// is known without. It tells whether the file is none of them for sure.
func (l *look) compare(id ID, path, target string, at File) (isOther bool) {
	i, is := l.names[target]
	sure := false
	if l.shy {
		i, is = l.allNames[target]
	} else {
		file, _, err := identify(path)
		sure = err == nil
		if j, same := l.files[file]; sure && same {
			i, is = j, true
		}
		if j, same := l.places[at]; !sure && same {
			i, is = j, true
		}
	}
	if is {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.found[i][id] = true
	}
	return sure && !is
}

// mappings looks at what a process has mapped: a device stays open by that when its descriptor is closed.
func (l *look) mappings(p *part) (cost int) {
	if l.shy {
		return 0
	}
	file, err := os.Open(p.dir + "/maps")
	if err != nil {
		l.note(p.id, err)
		return 0
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	seen := map[string]bool{}
	for ; lines.Scan() && !l.isOver(); cost++ {
		span, what, target, found := mapping(lines.Bytes())
		switch {
		case target == vfioDevice:
			l.grips(p.id, grip{device: true})
		case found && !seen[what]:
			seen[what] = true
			at, read := parseMap(lines.Bytes())
			if read && !l.isOther(what) && l.compare(p.id, p.dir+"/map_files/"+span, target, at) {
				l.remember(what)
			}
		}
	}
	return cost
}

// mapping reads a line of /proc/PID/maps (proc_pid_maps(5)): address, rights, offset, device, inode, path. Span is the address as
// map_files has it, what are the last three. It is found where it is of a file that has a path.
func mapping(line []byte) (span, what, target string, found bool) {
	fields := bytes.SplitN(line, []byte(" "), 6)
	if len(fields) < 6 {
		return "", "", "", false
	}
	begin, end, _ := strings.Cut(string(fields[0]), "-")
	name := strings.TrimLeft(string(fields[5]), " ")
	what = string(fields[3]) + " " + string(fields[4]) + " " + name
	return strings.TrimLeft(begin, "0") + "-" + strings.TrimLeft(end, "0"), what, name, strings.HasPrefix(name, "/")
}

// isOther tells whether a file that is mapped, as maps has it, is known to be none of those that are looked for.
func (l *look) isOther(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.others[what]
}

func (l *look) remember(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.others) < mostKnown {
		l.others[what] = true
	}
}

// apart are the threads of a process that have descriptors of their own, which its own folder does not show: those that took leave
// of the others' (unshare(2)), and all that are left when the first one has ended.
func (l *look) apart(pid int) (found []string, cost int) {
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil, 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // those that were read count
	last := pid
	for _, name := range names {
		thread, err := strconv.Atoi(name)
		if err != nil || thread == pid || l.isOver() {
			continue
		}
		if shares(pid, thread) || last != pid && shares(last, thread) {
			continue
		}
		found, last = append(found, name), thread
	}
	return found, len(names)
}

// shares tells whether two threads have the same descriptors, or that this cannot be told.
func shares(a, b int) bool {
	const files = 2 // KCMP_FILES of kcmp(2)
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), files, 0, 0, 0)
	return errno != 0 || order == 0
}
