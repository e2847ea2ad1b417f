package wire

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"portage/internal/faults"
)

// noTransactions is said wherever a transaction is refused. The code with it is always
// TRANSACTIONAL_ID_AUTHORIZATION_FAILED: every client takes that one as final and tells its caller at once, while
// the COORDINATOR_ codes are retried for ever.
const noTransactions = "transactions are not supported by this broker"

// handleInitProducerID gives out producer ids. They are random, not counted: a counter that lost its place would give
// out an id a partition already knows, and that partition would acknowledge records without appending them (R26).
func handleInitProducerID(k *call) (kmsg.Response, error) {
	req := k.req.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	switch {
	case req.TransactionalID == nil:
		resp.ProducerID, resp.ProducerEpoch = k.srv.newProducerID(), 0
	case *req.TransactionalID == "":
		resp.ErrorCode, resp.ProducerEpoch = kerr.InvalidRequest.Code, -1
	default:
		resp.ErrorCode, resp.ProducerEpoch = kerr.TransactionalIDAuthorizationFailed.Code, -1
	}
	return resp, nil
}

func (s *Server) newProducerID() int64 {
	if !faults.Enforced("R26") {
		return s.counted.Add(1) // a counter that every process begins anew
	}
	var b [8]byte
	rand.Read(b[:]) // never fails: the runtime stops the process first
	return int64(binary.BigEndian.Uint64(b[:]) >> 2)
}
