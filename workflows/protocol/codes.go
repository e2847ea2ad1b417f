package protocol

import "strings"

// Codes that only workflows and activities give; those of agents, metastore and planner are named where they arise.
const (
	CodeFreezeTooLong          = "freeze_too_long"
	CodeStartingOver           = "starting_over"
	CodeCommitLost             = "commit_lost"
	CodeMetastoreUnreachable   = "metastore_unreachable"
	CodeDestinationUnreachable = "destination_unreachable"
	CodeParticipantUnreachable = "participant_unreachable"
	CodeSourceLost             = "source_lost"
	CodePromotionNeedsDecision = "promotion_needs_decision"
	CodeTooLittleRoom          = "too_little_room"
	CodePaused                 = "paused"
	CodeOutsideWindow          = "outside_window"
	CodeNeedsApproval          = "needs_approval"
	CodeDeadline               = "deadline_passed"
	CodeCanaryFailed           = "canary_failed"
	CodeLimitsStartNone        = "limits_start_none"
	CodeFleetBusy              = "fleet_busy"
	CodeRebalanceRunning       = "rebalance_running"
)

// Explanation is what a stable code says to people. Both texts are one sentence each; Unblock names the very command where
// there is one, with {partition}, {from} and {to} standing for those of the case.
type Explanation struct {
	Means   string
	Unblock string
}

// Codes are all stable codes that can block, end or refuse a move or what an agent does. A new code is one line here and
// one heading in docs/operations.md; tests hold this list against the sources and against that page.
var Codes = map[string]Explanation{
	// What a move waits for: it goes on by itself.
	"metastore_unreachable":    {"Postgres does not answer, so no ownership can change and a frozen partition stays closed for writes.", "Bring Postgres back; `portage doctor` says what it sees."},
	"destination_unreachable":  {"The agent of the destination does not answer.", "Start the agent of {to}, or take the move back with `portage move cancel {partition}`."},
	"source_unreachable":       {"The agent of the source does not answer the destination.", "Start the agent of {from}; the copy then resumes by digest."},
	"participant_unreachable":  {"The agent of {from} or of {to} does not answer during the cutover.", "Start whichever agent `portage doctor` shows as not answering, or take the move back with `portage move cancel {partition}`."},
	"not_open":                 {"The partition is not open at the broker that owns it.", "`portage explain {partition}` names the reason it stays closed; mend that and restart its agent."},
	"not_frozen":               {"The freeze the destination drains for has ended.", "Nothing: the cutover freezes again by itself."},
	"transfer_limit":           {"The destination takes as many copies at once as it may.", "Wait for another copy to end, or restart the agent of {to} with a higher --max-transfers."},
	"busy":                     {"A limit of an agent is reached for a moment: two partitions are frozen already, as many copies leave the source as may, or a former copy is being put away.", "Wait; if it lasts, `portage explain {partition}` names the limit."},
	"digest_mismatch":          {"Copied bytes differ from the source's; they are fetched again, and after two differences the copy starts over.", "Nothing at first; if it persists, look at the disks of {from} and {to}."},
	"freeze_too_long":          {"The cutover would hold writes for longer than the limit, because the write rate is near the copy rate.", "Lower the write rate, lift the copy's limit with `portage move tune {partition} --limit 0`, or accept the freeze with `portage move tune {partition} --force`."},
	"disk_full":                {"The destination's disk has less free than it keeps for the partitions it owns.", "Free space on the disk of {to}, or take the move back with `portage move cancel {partition}`."},
	"source_corrupt":           {"What the source's disk holds of the partition is damaged; nothing of it was taken over, and the partition serves on where it is.", "Put the segment that the reason names back from a former copy or a backup, or take the move back with `portage move cancel {partition}`."},
	"storage_failed":           {"A disk failed a read or a write.", "Mend the disk that the reason names and restart its agent, or take the move back with `portage move cancel {partition}`."},
	"starting_over":            {"The claim was ended by another hand, usually the freeze's lease.", "Nothing: the move claims again under a new id and takes over what was copied; `portage move cancel {partition}` ends it."},
	"stale_token":              {"A later attempt of the same step is at work; this one is a leftover.", "Nothing: the later attempt goes on."},
	"internal":                 {"An agent met an error that it has no code for.", "Read the agent's log; the step is tried again meanwhile."},
	"recovery_pending":         {"The partition is being recovered.", "Wait until the recovery is over."},
	"metastore_restored":       {"The row was written on another Postgres timeline or server, so it may lack what was acknowledged since.", "Look at what `portage reconcile` would do, then run `portage reconcile --yes`; the move then goes on or starts over."},
	"metastore_older":          {"An agent holds a newer row than the metastore, which went back in time.", "Look at what `portage reconcile` would do, then run `portage reconcile --yes`; the move then goes on or starts over."},
	"source_lost":              {"The source is gone: its heartbeats stopped and its agent does not answer, and the copy can not or may not be promoted.", "Start the agent of {from}, and the copy goes on by itself; or give the move up with `portage move abandon {partition} --reason ...` and decide with `portage promote {partition}`."},
	"promotion_needs_decision": {"The source is gone and a person must decide whether its copy on {to} becomes the partition.", "Look at it and decide with `portage move promote {partition} --reason ...` or `portage move abandon {partition} --reason ...`; or start the agent of {from}, and the copy goes on by itself."},
	"copy_not_eligible":        {"The staged copy can not be promoted: it lacks something the source is known to have had.", "Start the agent of {from}; or give the move up with `portage move abandon {partition} --reason ...` and decide with `portage promote {partition}`."},

	// What an inspection sees from outside.
	"owner_unreachable":    {"The agent of the partition's owner does not answer, so clients can not write or read there.", "Start the agent of {from}; `portage doctor` shows all that do not answer."},
	"temporal_unreachable": {"Temporal does not answer, so moves stand still; what is open serves on.", "Bring Temporal back, or correct --temporal-address."},
	"no_worker":            {"No worker takes up the steps of moves.", "Start one with `portage worker`."},
	"claim_orphaned":       {"A move left its claim on the partition, and its workflow run is closed; the partition serves on.", "Nothing: the Supervisor takes the claim back within seconds; so does the next move, or `portage move abandon {partition} --reason TEXT`, at once."},

	// What refuses a move: it ends, and everything is as it was.
	"unknown_topic":          {"There is no topic by this name.", "Check the name."},
	"unknown_partition":      {"The topic has no such partition, or it was deleted.", "Check the number."},
	"unknown_broker":         {"There is no broker by this id.", "Choose one that `portage cluster members` lists."},
	"broker_in_use":          {"The broker still owns partitions, is the target of a move, or has another role.", "Move what it has away, let its moves end, and remove it then."},
	"broker_not_draining":    {"Partitions may still come to the broker.", "Mark it with `portage broker drain`, move what it has away, and remove it then."},
	"quarantined_copies":     {"The broker has copies in quarantine, whose records are nowhere else.", "Look at them with `portage quarantine list`, export or purge them, and remove the broker then."},
	"row_drifted":            {"The partition is not as it was when its move was planned.", "Plan again; a rebalance without approval does so by itself."},
	"unknown_plan":           {"The plan is not kept, or not any more.", "Plan anew with `portage rebalance --dry-run`."},
	"paused":                 {"Rebalances are paused: nothing is copied and no move begins, what was copied is kept.", "The reason says what is paused: the fleet, `portage cluster resume --reason ...`; this rebalance by itself, `portage rebalance resume --reason ...` or its update resume."},
	"outside_window":         {"The rebalance is outside its window: nothing is copied and no move begins, what was copied is kept.", "Nothing: it goes on when its window opens; to move now, cancel the rebalance and start one without a window."},
	"fleet_busy":             {"As many moves are in flight in the fleet as the rebalance allows, its own and those of others, so this one has not begun.", "Wait for one to end; `portage cluster moves` lists them. A rebalance may have more at once: `portage rebalance tune --max-in-flight 16`; a decommission takes its limit when it starts."},
	"limits_start_none":      {"The limits of the rebalance let no move begin, and none is in flight.", "Raise maxInFlight and transfersPerBroker to 1 or more: `portage rebalance tune --max-in-flight 8 --transfers-per-broker 2`."},
	"rebalance_running":      {"A rebalance moves partitions already; the next pass of the autobalance follows it.", "Wait for its end, or look at it with `portage rebalance status`."},
	"needs_approval":         {"The rebalance moves nothing before its plan is approved.", "Look at the plan and approve it with `portage rebalance --approve HASH --reason TEXT`, or with the update approve."},
	"deadline_passed":        {"The rebalance starts no more moves, because its deadline has passed.", "Start another one with a later deadline."},
	"canary_failed":          {"The first moves of the rebalance were not as its canary demands, so the rest was not started.", "Look at what the report says of them, mend that, and rebalance again."},
	"too_few_brokers":        {"Too few brokers would be left to take partitions.", "Add a broker, or say with --min-brokers how many must stay."},
	"unknown_move":           {"There is no move by this id.", "Choose one that `portage cluster moves --all` lists."},
	"internal_topic":         {"Internal topics never move.", "Nothing: this is not possible."},
	"already_owner":          {"The partition is on that broker already.", "Nothing: there is nothing to do."},
	"same_owner":             {"Both partitions of the swap are on one broker.", "Choose two partitions of two brokers."},
	"already_moving":         {"The partition is claimed by another move.", "Wait for it, or cancel it with `portage move cancel {partition}`."},
	"broker_draining":        {"The broker is draining and takes no partitions.", "Choose another broker."},
	"broker_removed":         {"The broker was removed from the fleet.", "Choose another broker."},
	"broker_dead":            {"The destination's agent does not answer.", "Start the agent of {to}, or choose another broker."},
	"too_little_room":        {"The destination has too little room for the partition beside the moves in flight.", "Free space on {to}, or choose another broker."},
	"replicated":             {"The partition has followers; plans are made for single-owner partitions.", "Move its copies one by one."},
	"copy_there":             {"The broker has a copy of the partition already.", "Choose another broker."},
	"rack_taken":             {"Another copy of the partition is in the broker's rack.", "Choose a broker of another rack."},
	"partition_cooling":      {"The partition was moved lately and is left alone by plans until its cooldown ends.", "Wait for the end of its cooldown, set `partitionCooldown` to 0s, or move it with `portage move start {partition} --to {to}`."},
	"broker_cooling":         {"The broker took part in moves lately and is left alone by plans until its cooldown ends.", "Wait for the end of its cooldown, or set `brokerCooldown` to 0s."},
	"load_untrusted":         {"Too few samples of the partition's load were seen to plan with it.", "Wait until its broker has reported a few times."},
	"destination_not_empty":  {"Something else is in the partition's place on the destination.", "Look at the folder the reason names, move it away, and start the move again."},
	"stale_controller":       {"An agent has seen a higher controller epoch: another worker deployment took over.", "Stop the superseded workers, or restart them to take over, and start the move again."},
	"stale_controller_epoch": {"Another worker deployment took over, so this one may claim nothing more.", "Stop the superseded workers, or restart them to take over, and start the move again."},
	"unauthorized":           {"The worker's token is not the agent's.", "Give all agents and workers of the fleet the same --token-file."},
	"unfenced":               {"An order came without controller epoch, id and token.", "Use workers of this release; --allow-unfenced lifts the check for experiments."},
	"bad_request":            {"An agent does not understand the request.", "Run the same release of agents and workers."},
	"not_found":              {"The agent has nothing by that name.", "Nothing: the move claims again."},

	// What ends a claim: the move starts over by itself.
	"not_owner":       {"The broker does not own the partition (any more).", "Nothing: the move claims again."},
	"row_moved":       {"The row changed since it was read.", "Nothing: it is read again, or the move claims again."},
	"move_ended":      {"The move id has ended and is never used again.", "Nothing: a retry has a new id."},
	"move_committed":  {"The move is committed, so it can not be taken back.", "Move the partition back to undo it."},
	"storage_changed": {"The row names other storage than the agent has.", "Mount the volume that the row names and restart the agent."},
	"source_alive":    {"The source has read the metastore since it was taken for gone, so nothing is promoted over it.", "Nothing: the move claims again and goes on copying."},
	"copy_behind":     {"The copy ends before what is known to be confirmed at the source.", "Start the agent of {from}; or give the move up with `portage move abandon {partition} --reason ...` and decide with `portage promote {partition}`."},
	"no_fence":        {"The source would not stop acknowledging writes in time, so its copy is not promoted by itself.", "Raise promoteAfter to twice the agent's --promote-fence, upgrade the agent of {from}, or use \"onSourceLoss\": \"ask\"."},
	"part_of_swap":    {"The move is one side of a swap, which is committed as a whole and never promoted.", "Nothing: the swap goes on; or give it up with `portage move abandon {partition} --reason ...` and decide with `portage promote {partition}`."},
	"commit_lost":     {"The commit was acknowledged by a Postgres that was lost, and no agent had seen it.", "Move the partition again."},
	"ends_differ":     {"The installed copy is not the frozen log, so it was not committed.", "Nothing: it is frozen and drained again."},

	// What keeps a partition closed at its owner.
	"data_missing": {"The owner's data folder does not hold the partition, and nothing is created over what is missing.", "Mount the right volume and restart the agent of {to}."},
	"data_older":   {"The log ends before what the owner is known to have confirmed: an old backup, or a disk that lost its end.", "Restore the newest data and restart the agent of {to}."},
	"other_epoch":  {"The copy in the data folder is not the one that the partition's epoch began with.", "Restore the newest data and restart the agent of {to}."},
	"foreign_data": {"The partition's folder holds another partition.", "Restore the right data and restart the agent of {to}."},

	// What keeps an agent from its place, and what refuses a topic.
	"node_id_taken":   {"Another broker has this Kafka node id.", "Start the agent with another --node-id."},
	"superseded":      {"Another process registered under this broker id.", "Run one agent a broker id."},
	"broker_alive":    {"The broker whose storage is to be replaced is alive on its old storage.", "Stop its agent first."},
	"other_fleet":     {"The data folder belongs to another fleet.", "Correct --data or --dsn."},
	"topic_exists":    {"There is a topic by this name already.", "Choose another name."},
	"invalid_topic":   {"The topic can not be made as asked.", "Correct what the reason names."},
	"invalid_setting": {"There is no such setting, or the value is none of it.", "Choose what `portage config show` lists."},
	"no_broker":       {"No broker can take a partition.", "Start an agent, or end a drain."},
}

// Place is what an explanation is about.
type Place struct{ Partition, From, To string }

// Means is the meaning of a code in one place; "" for a code that is not known.
func Means(code string, at Place) string { return at.fill(Codes[code].Means) }

// Unblock is what would unblock a code in one place, with the very command; "" for a code that is not known.
func Unblock(code string, at Place) string { return at.fill(Codes[code].Unblock) }

func (at Place) fill(text string) string {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	return strings.NewReplacer("{partition}", or(at.Partition, "TOPIC/PARTITION"), "{from}", or(at.From, "the source"), "{to}", or(at.To, "the destination")).Replace(text)
}
