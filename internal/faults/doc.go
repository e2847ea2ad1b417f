// Package faults names the places where a test may stop a process, lose a reply or switch off one safety rule.
//
// In the product every function here is an empty constant that the compiler removes: no crash point, no lost reply, no
// link between two processes but the network, every rule enforced. With the build tag portage_faults the process connects to the test's socket
// (PORTAGE_FAULTS_SOCKET) and asks at each point whether to go on; told to stop, it sends itself SIGSTOP, so that the
// whole process stands still at exactly that instruction until it is killed or continued from outside. The test
// therefore knows which points were reached, and can fail on one that no run reached.
//
// A call to the operating system can be made to fail (Fail), which stands for a disk that reports errors.
//
// Rules are switched off with PORTAGE_RULES_OFF=R7,R16 or, in process, with SetRule; a test named after a rule runs its
// story twice and must see the harm in the second run.
package faults
