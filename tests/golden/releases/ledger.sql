BEGIN TRANSACTION;
CREATE TABLE ledger_account (
	name TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	unit_column TEXT, 
	adjacency TEXT NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	renyi_order DOUBLE, 
	budget DOUBLE NOT NULL, 
	period_days INTEGER, 
	period_epsilon DOUBLE, 
	key_id TEXT NOT NULL, 
	partition_key TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	split TEXT, 
	gaussian_budget DOUBLE, 
	rooms TEXT, 
	terms TEXT, 
	PRIMARY KEY (name), 
	UNIQUE (dataset)
);
INSERT INTO "ledger_account" VALUES('letters','letters','person','unit','add_remove',30.0,1.0e-06,2.31673624890663099051e+00,1.94885336453747441964e+01,NULL,NULL,'4adab27ddf3e','5db3b66a9ab42f229d311f443b5d32b3ca6345e8ff27de3b487e5ca8803ff35c','2026-11-20T12:00:00.000000Z','{"chances":0.05,"gaussian":0.35,"renyi":0.2,"repeats":0.4}',1.85684555392673829032e+01,NULL,NULL);
CREATE TABLE ledger_draw (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (release_id, part, number)
);
CREATE TABLE ledger_entry (
	release_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	account TEXT NOT NULL, 
	method TEXT NOT NULL, 
	state TEXT NOT NULL CHECK (state IN ('RESERVED', 'BEGUN', 'COMMITTED', 'LOST', 'VOID')), 
	event TEXT NOT NULL, 
	loss DOUBLE NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reserved_at TEXT NOT NULL, 
	changed_at TEXT NOT NULL, 
	scratch TEXT, 
	host TEXT, 
	nonce TEXT, 
	artifact_sha256 TEXT, 
	certificate_sha256 TEXT, 
	reason TEXT, 
	reserved_by TEXT, 
	mu_squared DOUBLE, 
	PRIMARY KEY (release_id), 
	UNIQUE (number), 
	FOREIGN KEY(account) REFERENCES ledger_account (name)
);
INSERT INTO "ledger_entry" VALUES('invisible_ink-5cd71460adaa39b8',1,'letters','invisible_ink','COMMITTED','{"cells":16,"events":[{"count":6,"kind":"bounded_range","range":1.1212589524009011}],"kind":"disjoint","version":1}',2.1844882068376278994e+00,5.99999854748963112882e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-5cd71460adaa39b8','clinic','84344e44255f6447c7b8cffbc09e4225','70d3b74ee5da078dae7301d9df2d3a1367e88ea33fef79c17e5489252ca8468e','979b53219cd9b40672144099256154707e6184d42d087a3ba326b8fb0773607a',NULL,NULL,2.04983855055881480922e+00);
INSERT INTO "ledger_entry" VALUES('private_prediction-9c498300ba0141be',2,'letters','private_prediction','COMMITTED','{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1}',1.05551127882482909114e+00,4.16480096713266423336e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_prediction-9c498300ba0141be','clinic','82eb2ae5209df6ad7d682c16ec1a00a6','956c57669801e5687bb63bc02e2fe87eac1e56e454b902f1e54d7e8d815db356','6c4d6ea80b630463ac5f54cf76ad3774630a114ff966f3c45865d588fa4fce73',NULL,NULL,9.50719085562081511753e-01);
INSERT INTO "ledger_entry" VALUES('private_evolution-73cb992cb665d18f',3,'letters','private_evolution','COMMITTED','{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.1821521046851187,"version":1}',1.65779136957925499196e+00,5.99999999969999642246e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_evolution-73cb992cb665d18f','clinic','dbf6ae49f46bec14f220b478ea9a30f2','2ed704422b590eaf5ea90f7b5059e9cda8eb0474a490e5978fd3dd65c8bf4ee1','75189ecb07621ac874b86a0ad0b228bbcba27210a00ebbe3b7280f1a1f82f1d7',NULL,NULL,1.43114380876255475882e+00);
INSERT INTO "ledger_entry" VALUES('keyphrase_seeding-8e10b6b7e3b379de',4,'letters','keyphrase_seeding','COMMITTED','{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863144},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863142}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1}',1.65779136957590145229e+00,5.99999999969300112923e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/keyphrase_seeding-8e10b6b7e3b379de','clinic','9fa20698f727d47641c735c34f619650','ee2f013bb9280998e5ba68f45bb9a9561271c2f4cea4e1cd5a1956758ee34ad6','f642c2089df88e1419f7c506a17d3e6efe9825ea5faf6ecc19067e20d3d8adea',NULL,NULL,1.43114380875965974126e+00);
INSERT INTO "ledger_entry" VALUES('dp_lora-82fedabee58e23d6',5,'letters','dp_lora','COMMITTED','{"kind":"sampled_gaussian","noise_multiplier":1.079539680571883,"rate":0.5,"steps":3,"version":1}',1.09381911107497,5.99999850028934478274e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/dp_lora-82fedabee58e23d6','clinic','007600cedbcb62a361e655491a8f24cd','3665c23d0666462b5ac0c8d2df0d1ca3ac885bf1f703581159b82bab1df8b3d2','c8212ec4a0176fb6b7001a1af7797ceafed16a5f6881288df542117b0975a66c',NULL,NULL,1.58258647766395199596e+00);
INSERT INTO "ledger_entry" VALUES('invisible_ink-fa5132649b09989e',6,'letters','invisible_ink','BEGUN','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.4412886771288785}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',3.38363435386225930301e-01,9.99999693175487092133e-01,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-fa5132649b09989e','clinic','7ab91659719caf73d3d51839b0b3cb6b',NULL,NULL,NULL,NULL,7.06259506366458539305e-02);
CREATE TABLE ledger_head (
	id INTEGER NOT NULL CHECK (id = 1), 
	seq BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "ledger_head" VALUES(1,18,'256ed9f71fdabad2cc44f027351c5ac4ae45446ace7afd549cb95647e1c66b99');
CREATE TABLE ledger_history (
	seq BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	change TEXT NOT NULL, 
	body TEXT NOT NULL, 
	previous TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "ledger_history" VALUES(1,'2026-11-20T12:00:00.000000Z','letters',NULL,'OPENED','{"adjacency":"add_remove","budget":19.488533645374744,"dataset":"letters","delta":1e-06,"epsilon":30.0,"gaussian_budget":18.568455539267383,"key_id":"4adab27ddf3e","key_sha256":"59d03ddaca0e68419bc40964d79a487b954b39cf95d37b595bde3305d33605cc","period_days":null,"period_epsilon":null,"renyi_order":2.316736248906631,"rooms":null,"salt":"b27142ec3d75b7daf62fb1dfa2dee5a2","split":"{\"chances\":0.05,\"gaussian\":0.35,\"renyi\":0.2,\"repeats\":0.4}","unit":"person","unit_column":"unit"}','0000000000000000000000000000000000000000000000000000000000000000','570b26b634c56bba8c2bfa7cbfae9d7e6b2436cb39002bfb05cf006cba26a507');
INSERT INTO "ledger_history" VALUES(2,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-5cd71460adaa39b8','RESERVED','{"delta":1e-06,"epsilon":5.999998547489631,"event":{"cells":16,"events":[{"count":6,"kind":"bounded_range","range":1.1212589524009011}],"kind":"disjoint","version":1},"loss":2.184488206837628,"method":"invisible_ink","mu_squared":2.049838550558815,"number":1,"salt":"02b1fdb68eaab6cfb352a3c7ad039f8a","settings_digest":"300ba7b3238404507cad7746582fb32008ee6125ddd4230ca81f074e05aac103"}','570b26b634c56bba8c2bfa7cbfae9d7e6b2436cb39002bfb05cf006cba26a507','854d3035d14db60ad28939dce00521dcbbe3ba17582e856b6878e7cead637406');
INSERT INTO "ledger_history" VALUES(3,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-5cd71460adaa39b8','BEGUN','{"host":"clinic","nonce":"84344e44255f6447c7b8cffbc09e4225","salt":"e9574c5c4769fae10d165812503a7d02","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-5cd71460adaa39b8"}','854d3035d14db60ad28939dce00521dcbbe3ba17582e856b6878e7cead637406','0a173c44f4a70fed6dcd27e4d16df913983ecee98c8df4fc651445cfb040537e');
INSERT INTO "ledger_history" VALUES(4,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-5cd71460adaa39b8','COMMITTED','{"artifact_sha256":"70d3b74ee5da078dae7301d9df2d3a1367e88ea33fef79c17e5489252ca8468e","certificate_sha256":"979b53219cd9b40672144099256154707e6184d42d087a3ba326b8fb0773607a","salt":"818d7010b5a00f272547cebe386c3866"}','0a173c44f4a70fed6dcd27e4d16df913983ecee98c8df4fc651445cfb040537e','8e0581403e1de2f68e0f5e4a2cf63e04dac3f397bd179edf500c3901d8984934');
INSERT INTO "ledger_history" VALUES(5,'2026-11-20T12:00:00.000000Z','letters','private_prediction-9c498300ba0141be','RESERVED','{"delta":1e-06,"epsilon":4.164800967132664,"event":{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1},"loss":1.055511278824829,"method":"private_prediction","mu_squared":0.9507190855620815,"number":2,"salt":"d91ce6dc89bea89c0d75ac53f9840ab7","settings_digest":"f815abd9606e3d8e46b3a39eccb0f8a4bbd1798129f1878790c85a13ba4f501b"}','8e0581403e1de2f68e0f5e4a2cf63e04dac3f397bd179edf500c3901d8984934','b879b8adb253647e7920f245612df6a5ff721b6de42cc24dca59c2b3c2c58b91');
INSERT INTO "ledger_history" VALUES(6,'2026-11-20T12:00:00.000000Z','letters','private_prediction-9c498300ba0141be','BEGUN','{"host":"clinic","nonce":"82eb2ae5209df6ad7d682c16ec1a00a6","salt":"3ba6cc4bb4cf6864e9495561b4f304a6","scratch":"/tmp/clinic/.privsyn/scratch/private_prediction-9c498300ba0141be"}','b879b8adb253647e7920f245612df6a5ff721b6de42cc24dca59c2b3c2c58b91','0568baccb7506d77c2155a20b908894389c0aa23038f66c97f9a5262e6e91497');
INSERT INTO "ledger_history" VALUES(7,'2026-11-20T12:00:00.000000Z','letters','private_prediction-9c498300ba0141be','COMMITTED','{"artifact_sha256":"956c57669801e5687bb63bc02e2fe87eac1e56e454b902f1e54d7e8d815db356","certificate_sha256":"6c4d6ea80b630463ac5f54cf76ad3774630a114ff966f3c45865d588fa4fce73","salt":"88fb5aee3ae9461ab393b5530b1f70fd"}','0568baccb7506d77c2155a20b908894389c0aa23038f66c97f9a5262e6e91497','b2b16184a4e7f1871fdc285ee00d09d68df2b7c3861ceef4ff5419d9054eba7c');
INSERT INTO "ledger_history" VALUES(8,'2026-11-20T12:00:00.000000Z','letters','private_evolution-73cb992cb665d18f','RESERVED','{"delta":1e-06,"epsilon":5.999999999699996,"event":{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.1821521046851187,"version":1},"loss":1.657791369579255,"method":"private_evolution","mu_squared":1.4311438087625548,"number":3,"salt":"406940d8bd545b248f7eb8ceed0313ce","settings_digest":"a6cfbf9f0950a0178fb08646775b26f9b3f688bf2d59868fb684ebacb2c27d37"}','b2b16184a4e7f1871fdc285ee00d09d68df2b7c3861ceef4ff5419d9054eba7c','6eefdc536094e6c2b2eaa8081df6e8fd0b26d7c79f1e6ad72bedb0a4e54fabe9');
INSERT INTO "ledger_history" VALUES(9,'2026-11-20T12:00:00.000000Z','letters','private_evolution-73cb992cb665d18f','BEGUN','{"host":"clinic","nonce":"dbf6ae49f46bec14f220b478ea9a30f2","salt":"ca0a82d1bf37270f9669890db0233e9a","scratch":"/tmp/clinic/.privsyn/scratch/private_evolution-73cb992cb665d18f"}','6eefdc536094e6c2b2eaa8081df6e8fd0b26d7c79f1e6ad72bedb0a4e54fabe9','f6057b26a8b4af105ab4ca2d23b83fb9e752a9987a31f94daf88a7dce3c0239b');
INSERT INTO "ledger_history" VALUES(10,'2026-11-20T12:00:00.000000Z','letters','private_evolution-73cb992cb665d18f','COMMITTED','{"artifact_sha256":"2ed704422b590eaf5ea90f7b5059e9cda8eb0474a490e5978fd3dd65c8bf4ee1","certificate_sha256":"75189ecb07621ac874b86a0ad0b228bbcba27210a00ebbe3b7280f1a1f82f1d7","salt":"63de73eaedca1b7849cafbd548a3ef6a"}','f6057b26a8b4af105ab4ca2d23b83fb9e752a9987a31f94daf88a7dce3c0239b','9ec2bc2ac7fbad64447286c54a5b2f1ae87ba663d44726316c52a8de5b224711');
INSERT INTO "ledger_history" VALUES(11,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-8e10b6b7e3b379de','RESERVED','{"delta":1e-06,"epsilon":5.999999999693001,"event":{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863144},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863142}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1},"loss":1.6577913695759015,"method":"keyphrase_seeding","mu_squared":1.4311438087596597,"number":4,"salt":"fa8ed90f5104d90100badb3e3dc9e3db","settings_digest":"00ad78dfefc30a13b583bb0b644a156ac8883febb0e9aeb021dd47766ee65950"}','9ec2bc2ac7fbad64447286c54a5b2f1ae87ba663d44726316c52a8de5b224711','a706c1af082d2dbc49bcc2bf0c7d2a5706f2d7e48f1b4b438ed87716f895f720');
INSERT INTO "ledger_history" VALUES(12,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-8e10b6b7e3b379de','BEGUN','{"host":"clinic","nonce":"9fa20698f727d47641c735c34f619650","salt":"e8f54fb6f08ff98dd41e7b7a89543c5f","scratch":"/tmp/clinic/.privsyn/scratch/keyphrase_seeding-8e10b6b7e3b379de"}','a706c1af082d2dbc49bcc2bf0c7d2a5706f2d7e48f1b4b438ed87716f895f720','f2a4a15448ef08aa2da8a18841d69da5c200da58910490901e69a92e62a32950');
INSERT INTO "ledger_history" VALUES(13,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-8e10b6b7e3b379de','COMMITTED','{"artifact_sha256":"ee2f013bb9280998e5ba68f45bb9a9561271c2f4cea4e1cd5a1956758ee34ad6","certificate_sha256":"f642c2089df88e1419f7c506a17d3e6efe9825ea5faf6ecc19067e20d3d8adea","salt":"ff91343a06a45b178e2756e31a592635"}','f2a4a15448ef08aa2da8a18841d69da5c200da58910490901e69a92e62a32950','cb5d0eb2924526b8c331293fd283266f9c8b9da4ca3c51b97caf7734585e0a14');
INSERT INTO "ledger_history" VALUES(14,'2026-11-20T12:00:00.000000Z','letters','dp_lora-82fedabee58e23d6','RESERVED','{"delta":1e-06,"epsilon":5.999998500289345,"event":{"kind":"sampled_gaussian","noise_multiplier":1.079539680571883,"rate":0.5,"steps":3,"version":1},"loss":1.09381911107497,"method":"dp_lora","mu_squared":1.582586477663952,"number":5,"salt":"ee70704d361e45c082ba1de0470fd1da","settings_digest":"ecc5515e2a03aec83755e3f6bcac0266f07fe1c0b796292b1b308b79ab2a49f2"}','cb5d0eb2924526b8c331293fd283266f9c8b9da4ca3c51b97caf7734585e0a14','0c4cc087274403b4ca447d24106cfefa888d3048b72815bc6952aeab0805d7e6');
INSERT INTO "ledger_history" VALUES(15,'2026-11-20T12:00:00.000000Z','letters','dp_lora-82fedabee58e23d6','BEGUN','{"host":"clinic","nonce":"007600cedbcb62a361e655491a8f24cd","salt":"beb2497e803ccbb25447a322caeccb67","scratch":"/tmp/clinic/.privsyn/scratch/dp_lora-82fedabee58e23d6"}','0c4cc087274403b4ca447d24106cfefa888d3048b72815bc6952aeab0805d7e6','1f5c904a454b54b4ba176013dd768cf1a5cb317cbb5a3ad54e649299cc158367');
INSERT INTO "ledger_history" VALUES(16,'2026-11-20T12:00:00.000000Z','letters','dp_lora-82fedabee58e23d6','COMMITTED','{"artifact_sha256":"3665c23d0666462b5ac0c8d2df0d1ca3ac885bf1f703581159b82bab1df8b3d2","certificate_sha256":"c8212ec4a0176fb6b7001a1af7797ceafed16a5f6881288df542117b0975a66c","salt":"6f9f87107bbb4c86dda480b2bb7fe5f9"}','1f5c904a454b54b4ba176013dd768cf1a5cb317cbb5a3ad54e649299cc158367','850a16639868b78099f61f45e9eeb69f5e42bf4ea80275e586851ddfb25cd42f');
INSERT INTO "ledger_history" VALUES(17,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-fa5132649b09989e','RESERVED','{"delta":1e-06,"epsilon":0.9999996931754871,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.4412886771288785}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":0.33836343538622593,"method":"invisible_ink","mu_squared":0.07062595063664585,"number":6,"salt":"918070c98d3b269e6992d3306c830a34","settings_digest":"bd1c3416f4424a7329211d68fba0ad4848daa5f3ef8cf2f26e0835103b13c31e"}','850a16639868b78099f61f45e9eeb69f5e42bf4ea80275e586851ddfb25cd42f','1aadeb31719c42ae3532260667d8f03b2a532ea7d3fe2b2129d8c4b0542f7036');
INSERT INTO "ledger_history" VALUES(18,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-fa5132649b09989e','BEGUN','{"host":"clinic","nonce":"7ab91659719caf73d3d51839b0b3cb6b","salt":"72d3438e22732726aa095e3883d3ce0b","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-fa5132649b09989e"}','1aadeb31719c42ae3532260667d8f03b2a532ea7d3fe2b2129d8c4b0542f7036','256ed9f71fdabad2cc44f027351c5ac4ae45446ace7afd549cb95647e1c66b99');
CREATE TABLE ledger_lease (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	token BIGINT NOT NULL, 
	machine TEXT, 
	host TEXT, 
	pid BIGINT, 
	started BIGINT, 
	expires_at TEXT NOT NULL, 
	steps BIGINT NOT NULL, 
	PRIMARY KEY (release_id, part)
);
INSERT INTO "ledger_lease" VALUES('invisible_ink-5cd71460adaa39b8','partition',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-5cd71460adaa39b8','shard-0',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-5cd71460adaa39b8','shard-1',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-5cd71460adaa39b8','certificate',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-9c498300ba0141be','partition',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-9c498300ba0141be','shard-0',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',35);
INSERT INTO "ledger_lease" VALUES('private_prediction-9c498300ba0141be','shard-1',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',32);
INSERT INTO "ledger_lease" VALUES('private_prediction-9c498300ba0141be','certificate',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-73cb992cb665d18f','partition',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-73cb992cb665d18f','shard-0',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',16);
INSERT INTO "ledger_lease" VALUES('private_evolution-73cb992cb665d18f','certificate',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-8e10b6b7e3b379de','partition',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-8e10b6b7e3b379de','shard-0',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',6);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-8e10b6b7e3b379de','certificate',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-82fedabee58e23d6','partition',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-82fedabee58e23d6','shard-train',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',1);
INSERT INTO "ledger_lease" VALUES('dp_lora-82fedabee58e23d6','shard-0',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-82fedabee58e23d6','certificate',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-fa5132649b09989e','partition',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-fa5132649b09989e','shard-0',1,NULL,'clinic',32564,663875,'2026-11-20T12:01:00.000000Z',48);
CREATE TABLE ledger_migration (
	version INTEGER NOT NULL, 
	applied_at TEXT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "ledger_migration" VALUES(11,'2026-11-27T16:09:59.363134Z');
CREATE TABLE ledger_refusal (
	number BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	method TEXT, 
	epsilon DOUBLE, 
	delta DOUBLE, 
	error TEXT NOT NULL, 
	message TEXT NOT NULL, 
	refused_by TEXT, 
	PRIMARY KEY (number)
);
CREATE TABLE ledger_secret (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "ledger_secret" VALUES('source','bd476d78075e2946798ce46e335291887f53fce32ddd16ab6c82a62be8914d48');
CREATE TABLE ledger_source (
	release_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	version TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	noted_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
INSERT INTO "ledger_source" VALUES('invisible_ink-5cd71460adaa39b8','letters','v1','b1fec7a2f28a66372e7686973779b95cff1c0da5','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_prediction-9c498300ba0141be','letters','v1','b1fec7a2f28a66372e7686973779b95cff1c0da5','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_evolution-73cb992cb665d18f','letters','v1','b1fec7a2f28a66372e7686973779b95cff1c0da5','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('keyphrase_seeding-8e10b6b7e3b379de','letters','v1','b1fec7a2f28a66372e7686973779b95cff1c0da5','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('dp_lora-82fedabee58e23d6','letters','v1','b1fec7a2f28a66372e7686973779b95cff1c0da5','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('invisible_ink-fa5132649b09989e','letters','v1','b1fec7a2f28a66372e7686973779b95cff1c0da5','2026-11-20T12:00:00.000000Z');
CREATE TABLE ledger_vault (
	release_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	nonce TEXT NOT NULL, 
	shards INTEGER NOT NULL, 
	made_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
CREATE INDEX ix_ledger_history_release_id ON ledger_history (release_id);
CREATE INDEX ix_ledger_source_fingerprint ON ledger_source (fingerprint);
CREATE INDEX ix_ledger_entry_account ON ledger_entry (account);
COMMIT;
