package host

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/plaintext"
	"github.com/divvy-gpu/divvy/internal/remote/command"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// UsedByFlag is the flag of `divvy run` by which it learns for whom on another host a command is: a [control.Remote] in JSON.
const UsedByFlag = "used-by"

// errHost is why commands end with their server.
var errHost = errors.New("the server of the command's host ends")

// Command implements [server.Host]. The share is made by `divvy run` on this host, as the client's local user.
func (h *Host) Command(ctx context.Context, who server.Client, take wire.Take, c wire.Command, w *wire.Conn) error {
	e, client, err := h.reserve(ctx, who, &take, w)
	switch {
	case err != nil && w.Err() != nil:
		return fmt.Errorf("%w: %w", command.ErrClient, w.Err())
	case err != nil && ctx.Err() != nil:
		return command.Refusal(errHost)
	case err != nil:
		return command.Refusal(err)
	}
	left := &leftover{host: h, entry: e, mark: rand.Text(), serving: ctx, over: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if why := h.book.begin(e, func(why string) { cancel(errors.New(why)) }); why != "" {
		h.book.release(e)
		return &wire.Refused{Code: wire.CodeClient, Text: why}
	}
	local, usedBy, err := left.whose(client, who, take)
	if err != nil {
		h.book.release(e)
		return command.Refusal(err)
	}
	defer left.await() //nolint:contextcheck // its context is the server's: what is left ends after the client has gone too
	run := command.Host{
		Attendant: h.options.Attendant, Run: append(slices.Clone(h.options.Run), runFlags(take, usedBy)...),
		User: local, Switch: local.UID != os.Getuid(), Variables: client.Environment, Own: h.options.Env,
		Ended: left.end,
	}
	err = run.Serve(ctx, w, c)
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return errHost
	}
	return err
}

// whose is the local user whose a command is, and for whom on another host it is, for [UsedByFlag].
func (l *leftover) whose(client servefile.Client, who server.Client, take wire.Take) (command.User, string, error) {
	local, err := userOf(client.User)
	if err != nil {
		return local, "", err
	}
	l.uid = local.UID
	usedBy, err := json.Marshal(control.Remote{Client: who.Name, Address: who.Address, Host: Word(take.Host), User: Word(take.User), Mark: l.mark})
	if err != nil {
		return local, "", fmt.Errorf("say whose the command is: %w", err)
	}
	return local, string(usedBy), nil
}

// reserve counts a command's share. It is asked for as the client wrote it, but of GPUs that are given to clients. A request that
// waits does so until the client ends, who is told where it stands.
func (h *Host) reserve(ctx context.Context, who server.Client, take *wire.Take, w *wire.Conn) (*entry, servefile.Client, error) {
	client, _, err := h.book.left(who)
	if err != nil {
		return nil, client, err
	}
	if !client.Commands {
		return nil, client, &wire.Refused{Code: wire.CodeBounds, Text: "the file of the GPU's host lets client " + who.Name + " run no commands: ask its administrator for `divvy serve admit " + who.Name + " --commands`"}
	}
	list, err := h.list(ctx)
	if err != nil {
		return nil, client, err
	}
	served, err := h.served(list)
	if err != nil {
		return nil, client, err
	}
	if take.Request, err = h.among(take.Request, served, who.Name); err != nil {
		return nil, client, err
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() { // the client says nothing more until it hears that its command starts, so nobody has to read
		select {
		case <-w.Done():
			giveUp()
		case <-ctx.Done():
		}
	}()
	told := func(q wire.Queued) { _ = w.Send(wire.Answer{Queued: &q}) } // one that has ended gives up
	return h.book.count(ctx, who, *take, largest(list, take.Request.Among), told)
}

// begin is told how to end a command that is counted. Why says why its client is gone already, if so.
func (b *book) begin(e *entry, stop func(why string)) (why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.stop = stop
	return e.removed
}

// longestWord bounds such a word, in characters.
const longestWord = 60

// Word is a client's own word for who it is, such as the name of its machine, in one line.
func Word(word string) string { return plaintext.Line(word, longestWord) }

// runFlags are the flags of `divvy run` for a request, and the dash before the command.
func runFlags(take wire.Take, usedBy string) []string {
	r := take.Request
	flags := []string{"--" + UsedByFlag, usedBy}
	add := func(name, value string) {
		if value != "" && value != "0" {
			flags = append(flags, "--"+name+"="+value)
		}
	}
	add("name", r.Name)
	add("gpu", strings.Join(r.Among, ","))
	add("gpus", strconv.Itoa(r.GPUs))
	if !r.Memory.IsZero() && !r.Memory.IsAll() {
		add("memory", r.Memory.String())
	}
	add("cores", strconv.Itoa(r.Cores))
	add("profile", r.Profile)
	add("isolate", string(r.Isolate))
	add("policy", string(r.Policy))
	add("max-cores", strconv.Itoa(r.MaxCores))
	add("weight", strconv.Itoa(r.Weight))
	add("class", string(r.Class))
	add("backend", string(r.Backend))
	if take.Wait {
		flags = append(flags, "--wait")
	}
	return append(flags, "--")
}

// errNoAccount is for the user of a server who is only a number. Shares need no more, and commands need a home.
var errNoAccount = errors.New("the user of this server has no account on its host, and commands need one")

// userOf is a local user by name, or the one who runs this process where there is none.
func userOf(name string) (command.User, error) {
	u, err := user.Current()
	if name != "" {
		u, err = user.Lookup(name)
	}
	if name == "" && errors.As(err, new(user.UnknownUserIdError)) {
		return command.User{UID: os.Getuid()}, fmt.Errorf("%w: user %d", errNoAccount, os.Getuid())
	}
	if err != nil {
		return command.User{}, fmt.Errorf("find the local user of a client: %w", err)
	}
	local := command.User{Name: u.Username, Home: u.HomeDir}
	groups, err := u.GroupIds()
	if err != nil {
		return local, fmt.Errorf("find the groups of user %s: %w", u.Username, err)
	}
	numbers := append([]string{u.Uid, u.Gid}, groups...)
	ids := make([]int, len(numbers))
	for i, text := range numbers {
		if ids[i], err = strconv.Atoi(text); err != nil {
			return local, fmt.Errorf("find the numbers of user %s: %w", u.Username, err)
		}
	}
	local.UID, local.GID, local.Groups = ids[0], ids[1], ids[2:]
	return local, nil
}
