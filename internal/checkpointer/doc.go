// Package checkpointer asks the driver to take processes off their GPUs and to bring them back. A call of the driver may
// never return, so processes of their own make them (divvy-checkpoint, lib/tools/checkpoint.c). One that dies or does not
// answer is replaced, and the states of the processes tell how far it came.
package checkpointer
