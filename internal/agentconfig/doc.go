// Package agentconfig reads the administrator's configuration of an agent that
// serves several users: how much each may have, who may overcommit, and what is
// done about work outside shares. It is pure: the accounts of the machine are asked
// through [Accounts].
//
// The file is YAML, read strictly: an unknown field, a field given twice, a user who
// does not exist and a value out of range are errors with file, line and field.
//
//	apiVersion: divvy.dev/v1alpha1
//	kind: AgentConfig
//	outside: report            # report, stop or kill
//	defaultMemory: 8Gi         # of each GPU, for requests that name none
//	overcommit:
//	  users: [ada]
//	  groups: [operators]
//	idle:
//	  after: 12h               # without use of a GPU
//	  action: report           # report or end
//	users:
//	  ada: {memory: 96Gi, gpus: 4, cores: 200, time: 168h, weight: 10}
//	groups:
//	  students: {memory: 24Gi, gpus: 1, cores: 50, time: 8h, weight: 1}
//	others: {memory: 8Gi}      # whom neither an entry nor a group names
//	metrics: {address: 127.0.0.1:9410} # where Prometheus reads
//	history: {days: 400, size: 64Mi}  # what is kept of what shares did
//
// docs/agent-config.md explains it to administrators.
package agentconfig
