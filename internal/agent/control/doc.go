// Package control is how programs speak with the agent: a unix socket, one JSON
// object a line, the asker told by the kernel (SO_PEERCRED), never by itself.
//
// A request is {"id":1,"method":"list","params":{…}}, its answer {"id":1,
// "result":{…}} or {"id":1,"error":{"code":"…","message":"…"}}. Answers may
// come in another order than requests. {"method":"cancel","id":1} gives up on
// request 1. A connection starts with hello. An error with id 0 is about the connection,
// which then ends.
package control
