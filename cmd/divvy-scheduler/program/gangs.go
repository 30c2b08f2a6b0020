package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/divvy-gpu/divvy/internal/scheduler"
)

var (
	errGone    = errors.New("a member has gone")
	errRefused = errors.New("a member's node does not let it any more")
	errSurplus = errors.New("no room for more members than the minimum")
)

// lackPoll is the time between two looks whether gangs lack something else than their members say.
const lackPoll = 500 * time.Millisecond

// handing is members of a gang that were planned together and are handed out one after the other. It is empty once all of them are
// scheduled: they may still write their claims while the next gang is planned.
type handing struct {
	team *scheduler.Team
	rest []*scheduler.Unit
	// units are those handed out and not scheduled yet.
	units map[types.UID]*scheduler.Unit
	// there are those that are scheduled, by node.
	there map[string][]*scheduler.Unit
}

// stopped is members that were scheduled before their gang was stopped. Until they are taken back they count as bound, so that a
// plan for the others would be one for a part of the gang.
type stopped struct {
	id    string
	units []*scheduler.Unit
	until time.Time
}

// stopLimit is how long a gang waits for them at most.
const stopLimit = 30 * time.Second

// ends reports whether members of a gang are still to be taken back.
func (s *stopped) ends(id string, now time.Time) bool {
	return s.id == id && now.Before(s.until) && slices.ContainsFunc(s.units, func(u *scheduler.Unit) bool { return !u.Undone.Load() })
}

// member is the next member of the gang that was planned last, nil where none is left.
func (a *adapter) member(logger klog.Logger) *framework.QueuedPodInfo {
	if len(a.handing.rest) == 0 {
		return nil
	}
	unit := a.handing.rest[0]
	info := a.pop(logger, unit.Pod)
	if info == nil {
		a.stop(errGone)
		return nil
	}
	a.handing.rest = a.handing.rest[1:]
	a.handing.units[unit.Pod.UID] = unit
	return info
}

// stop ends a gang of which not all members were handed out: those that were do not bind.
func (a *adapter) stop(why error) {
	if a.handing.team != nil {
		a.handing.team.Fail(why)
		a.stopped = stopped{a.handing.team.ID, nil, time.Now().Add(stopLimit)}
		for _, units := range a.handing.there {
			a.stopped.units = append(a.stopped.units, units...)
		}
	}
	a.engine.Drop(a.handing.rest)
	for _, unit := range a.handing.units {
		a.engine.Drop([]*scheduler.Unit{unit})
	}
	a.handing = handing{}
}

// gang plans the gang of a pod, and schedules this pod as its first member.
func (a *adapter) gang(ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *corev1.Pod, refusal *refusal) (kubescheduler.ScheduleResult, error) {
	var none kubescheduler.ScheduleResult
	if slices.ContainsFunc(a.engine.Gangs.Waiting(pod), func(p *corev1.Pod) bool { return a.isUndoing(p.UID) }) {
		return none, errUndoing
	}
	a.stop(errGone)
	if a.stopped.ends(a.engine.Gangs.ID(pod), time.Now()) {
		return none, errUndoing
	}
	id, waiting := a.engine.Gangs.ID(pod), a.engine.Gangs.Waiting(pod)
	trials := newTrials(ctx, fw)
	trials.meet, trials.denials = slices.ContainsFunc(waiting, minds), a.denials[id]
	begun := time.Now()
	team, err := a.engine.PlanGang(pod, trials)
	measured(begun, err)
	if keeping := (*scheduler.KeepingError)(nil); errors.As(err, &keeping) {
		for _, unit := range keeping.Units {
			a.leave(unit)
		}
		return none, errUndoing
	}
	if err != nil {
		if !errors.Is(err, scheduler.ErrRoom) && !errors.Is(err, scheduler.ErrQuota) {
			return none, refusal.because(err.Error())
		}
		text := err.Error()
		if !scheduler.Contested(err) {
			text = a.takeBackGang(ctx, fw, state, pod, err)
		}
		delete(a.denials, id)
		because := refusal.because(text)
		a.refused(fw, pod, because)
		return none, because
	}
	a.handing = handing{team: team, units: map[types.UID]*scheduler.Unit{}, there: map[string][]*scheduler.Unit{}}
	for _, unit := range team.Units {
		if unit.Pod.UID == pod.UID {
			a.handing.units[pod.UID] = unit
		} else {
			a.handing.rest = append(a.handing.rest, unit)
		}
	}
	unit := a.handing.units[pod.UID]
	if unit == nil { // the others are handed out after it
		a.engine.Waiting.Add(pod, "surplus of gang "+team.ID)
		return none, refusal.because(errSurplus.Error())
	}
	return a.scheduleMember(ctx, fw, state, unit, refusal)
}

// refused puts all members of a gang for which there is no room into one line, and has all of them say why: otherwise each
// would say so when its turn comes, and those that have had it would say what was true then.
func (a *adapter) refused(fw framework.Framework, pod *corev1.Pod, because error) {
	id, members := a.engine.Gangs.Refused(pod)
	a.nominate(fw, pod, members)
	a.engine.Waiting.Add(pod, "gang "+id)
	for _, member := range members {
		if a.engine.Waiting.Add(member, "gang "+id); member.UID != pod.UID {
			a.reasons.Say(member, unschedulable(member, because.Error()), nil)
		}
	}
}

// unforeseen notes that a member was refused that had been let on trial, and has its gang planned again. Where there is no
// other plan, all of it is forgotten, so that the next event finds the gang as it was.
func (a *adapter) unforeseen(t *trials, unit *scheduler.Unit, status *fwk.Status) {
	if a.denials == nil || len(a.denials) > mostDenials { // of gangs that have gone, too
		a.denials = map[string]denials{}
	}
	id, node := unit.Team.ID, unit.Place.Name
	if len(a.denials[id]) >= mostDenials {
		return
	}
	one := refusedMember{key: t.key(unit.Pod), node: node, here: len(a.handing.there[node]), why: status.Message()}
	for _, other := range a.handing.there[node] {
		if key := t.key(other.Pod); key != one.key && !slices.Contains(one.others, key) {
			one.others = append(one.others, key)
		}
	}
	a.denials[id] = append(a.denials[id], one)
	a.anew.Store(&unit.Pod.UID)
}

// lacking has members of gangs say anew what their gangs lack, until the context ends.
func (a *adapter) lacking() {
	go wait.UntilWithContext(a.ctx, func(context.Context) {
		a.engine.Gangs.Lacking(time.Now(), func(pod *corev1.Pod, reason string) {
			a.reasons.SayHeld(pod, unschedulable(pod, reason))
		})
	}, lackPoll)
}

// scheduleMember gives a member the node that was planned, if Kubernetes' filters still let it.
func (a *adapter) scheduleMember(ctx context.Context, fw framework.Framework, state fwk.CycleState, unit *scheduler.Unit, refusal *refusal) (kubescheduler.ScheduleResult, error) {
	state.Write(cycleKey, &cycle{unit: unit})
	node := unit.Place.Name
	_, status, _ := fw.RunPreFilterPlugins(ctx, state, unit.Pod)
	if status.IsSuccess() {
		info, err := fw.SnapshotSharedLister().NodeInfos().Get(node)
		if err != nil {
			status = fwk.AsStatus(err)
		} else {
			status = fw.RunFilterPluginsWithNominatedPods(ctx, state, unit.Pod, info)
		}
	}
	if !status.IsSuccess() {
		a.unforeseen(newTrials(ctx, fw), unit, status)
		a.stop(fmt.Errorf("%w: pod %s, node %s: %s", errRefused, unit.Pod.Name, node, status.Message()))
		return kubescheduler.ScheduleResult{}, refusal.because(status.Message())
	}
	delete(a.handing.units, unit.Pod.UID)
	a.handing.there[node] = append(a.handing.there[node], unit)
	if len(a.handing.rest)+len(a.handing.units) == 0 {
		delete(a.denials, unit.Team.ID)
		a.handing = handing{}
	}
	a.engine.Waiting.Remove(unit.Pod.UID)
	a.engine.Gangs.Assume(unit.Pod, node)
	return kubescheduler.ScheduleResult{SuggestedHost: node, EvaluatedNodes: 1, FeasibleNodes: 1}, nil
}
