package web

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// reader is who may see something: nobody may see more than sums.
type reader struct {
	known bool
	uid   int
	name  string
}

func readerOf(key string, user func(uid int) string) reader {
	uid, err := strconv.Atoi(key)
	if err != nil {
		return reader{}
	}
	return reader{known: true, uid: uid, name: user(uid)}
}

// sees reports whether the reader sees what is a user's.
func (r reader) sees(uid int) bool { return r.known && (r.uid == 0 || r.uid == uid) }

// seesOf does so by the user's name, "" where nobody knows whose it is.
func (r reader) seesOf(user string) bool {
	return r.known && (r.uid == 0 || user != "" && user == r.name)
}

// hidden says what the reader does not see.
func (r reader) hidden() string {
	switch {
	case !r.known:
		return "You see sums over all shares, and none of the shares."
	case r.uid != 0:
		return "You see your own shares, and sums over those of all users."
	}
	return ""
}

// overviewOf is what a reader may see of a listing: the key is a user's id, "" for anybody, who sees sums alone.
func overviewOf(node string, l *control.Listing, key string, user func(uid int) string) *overview.Overview {
	by := readerOf(key, user)
	o := overview.New(l.Time)
	o.Reader, o.Hidden = by.name, by.hidden()
	n := overview.Node{Name: node}
	at := map[string]int{}
	for i := range l.GPUs {
		at[l.GPUs[i].UUID] = i
		n.GPUs = append(n.GPUs, gpuOf(&l.GPUs[i]))
	}
	for i := range l.Tenants {
		t := &l.Tenants[i]
		for j := range t.Shares {
			k, ok := at[t.Shares[j].UUID]
			if !ok {
				continue
			}
			if n.GPUs[k].Count++; by.sees(t.UID) {
				n.GPUs[k].Shares = append(n.GPUs[k].Shares, shareOf(t, &t.Shares[j]))
			}
		}
	}
	for _, gpu := range l.LeftOut {
		n.Notes = append(n.Notes, control.LeftOutText(gpu, l.Refused))
	}
	for _, p := range l.Outside {
		if by.seesOf(p.User) {
			n.Outside = append(n.Outside, overview.Outside{PID: p.PID, User: cut(p.User), Command: cut(p.Command), GPU: indexOf(l, p.UUID), Used: p.Used})
		}
	}
	for _, w := range l.Waiting {
		if !by.seesOf(w.User) {
			o.WaitingUnseen++
			continue
		}
		o.Waiting = append(o.Waiting, overview.Waiting{Name: cut(w.Request.Name), User: cut(w.User), Since: w.Since, Reason: cut(w.Reason)})
	}
	o.Nodes = append(o.Nodes, n)
	return o
}

func gpuOf(g *control.GPU) overview.GPU {
	v := overview.GPU{
		Index: new(g.Index), UUID: g.UUID, Model: g.Name, Form: g.Form, Capacity: g.Capacity, Granted: g.Granted, Used: g.Used, Cores: g.Cores, Fault: cut(g.Fault),
	}
	if v.Fault == "" {
		v.Fault = cut(g.Misgiven)
	}
	if r := g.Reading; r != nil {
		v.Utilisation, v.Temperature, v.Milliwatts = r.Utilisation, r.Temperature, r.Milliwatts
	}
	return v
}

func shareOf(t *control.Tenant, s *control.Share) overview.Share {
	used := s.Used
	if s.Observed != nil {
		used = *s.Observed
	}
	v := overview.Share{
		Name: cut(t.Name), User: cut(t.User), Namespace: cut(t.Namespace), Container: cut(t.Container), Command: commandOf(t.Command), Since: t.Created, Whole: s.Whole,
		Memory: s.Limit, Used: &used, Cores: s.Cores, Policy: s.Policy, Class: s.Class, Weight: s.Weight,
	}
	for _, pod := range t.Pods {
		v.Pods = append(v.Pods, cut(pod))
	}
	if s.Time != nil {
		v.Percent, v.HeldBack = s.Time.Percent, new(time.Duration(s.Time.HeldBackTotal))
	}
	if s.Refusals != nil {
		v.Refused = s.Refusals.Count
	}
	for _, text := range []string{t.Fault, s.Excess, s.Past, thrashing(s)} {
		if text != "" {
			v.Notes = append(v.Notes, cut(text))
		}
	}
	return v
}

// thrashing says that a share's memory moves for most of the time, "" while it does not.
func thrashing(s *control.Share) string {
	if s.Turns == nil {
		return ""
	}
	return s.Turns.Thrashing
}

// longest is how many bytes of a text are kept that others chose.
const longest = 1024

func cut(text string) string {
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// commandOf is a command line as people read it.
func commandOf(words []string) string {
	if len(words) == 0 {
		return ""
	}
	var line strings.Builder
	line.WriteString(filepath.Base(words[0]))
	for _, word := range words[1:] {
		if line.Len() > longest {
			break
		}
		line.WriteString(" " + cut(word))
	}
	return cut(line.String())
}

func indexOf(l *control.Listing, uuid string) int {
	for i := range l.GPUs {
		if l.GPUs[i].UUID == uuid {
			return l.GPUs[i].Index
		}
	}
	return -1
}
