// Package residency decides which swap shares have their memory on the GPUs while not all of it fits. It is pure: the
// caller reads clocks and pages, moves memory, and opens and closes gates. Times are nanoseconds of CLOCK_MONOTONIC.
//
// A share is away, enters, is resident, or leaves. What is resident fits: the bytes of all shares that are not away are
// at most the room of each GPU. A share that is resident runs at will, and one that is away waits at its gate when it
// wants to run. The span from the opening of its gate to its closing is the share's turn.
//
// The law:
//
//   - Shares that fit together are resident together. A share that is idle stays so until somebody needs its room.
//   - A turn is so long that the memory that moves when it ends takes at most Moving of it, and between Shortest and
//     Longest. A share that has nothing to do for as long as its bytes need to come back ends its turn early.
//   - Turns go by weight, as virtual time: who leaves has had at least as much as who enters. After InARow turns a
//     share leaves whatever its weight is, so that nobody starves.
//   - Who asks after a rest longer than the change takes enters at once, if it has had less than who leaves. So does a
//     share that is online, beside shares that are not. An online share leaves last.
//   - Of the shares that may leave, those do whose leaving moves the fewest bytes, and they move no more than the
//     entering share lacks.
//   - Who takes more memory than there is room for leaves before others that work.
//   - A share that did not answer when its turn ended stays away for twice as long each time, until it answers.
//   - A share of several GPUs is resident on all of them or on none.
//
// A Law is for one goroutine at a time.
package residency
